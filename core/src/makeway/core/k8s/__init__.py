"""The parts of Kubernetes objects that makeway reads, and the field's arithmetic on them.

Pure: quantities, selectors, affinity, requests, budgets. Imports no other folder of `core`.
"""
