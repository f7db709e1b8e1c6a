"""Hierarchical queues: their configuration, who is in them, and what a lowered quota costs whom. Pure."""
