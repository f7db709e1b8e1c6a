"""Lowered quotas: which queues are over their max, who has to go, and the process that sees to it.

Decisions are pure; `loop` alone waits and publishes. Imports `plan`, `snapshot` and `recording`.
"""
