"""From one question to one answer: which pods would have to go for a pod to fit, over all nodes at once.

Pure functions over a snapshot and a `PlanCache`. Imports `snapshot`; the folders above call `plan` and read
its results.
"""
