"""A real Kubernetes control plane on this machine, without a container engine, for the demo and the tests.

`cluster.Cluster` is the entry: it builds what is missing (`build`), starts etcd, kube-apiserver,
kube-controller-manager, nats-server, makeway-scheduler, KWOK, the planner and the evictor as ordinary
processes on loopback ports of their own, and ends every one of them, whatever happens to the process that
owns it.

This package belongs to the source checkout; it is not in the wheel.
"""
