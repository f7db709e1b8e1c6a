"""The DaemonSet preemptor: room on the one node that its pod must run on.

Pure. Imports the rest of `plan` and `snapshot`; only `plan.planner` calls it.
"""
