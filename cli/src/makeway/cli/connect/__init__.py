"""Connecting to the cluster and to NATS as the user's kubeconfig allows."""
