"""The cluster as the watch last saw it: nodes, pods, budgets, exemptions, queue usage, volumes, topology.

State and the arithmetic on it; nothing here plans, waits or writes. Every other folder may import it; it
imports `makeway.core` alone.
"""
