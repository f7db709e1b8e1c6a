"""Mode observe: what makeway would have done beside what kube-scheduler did.

`pairing` and `comparing` are pure; `loop` publishes the comparisons. Imports `plan` and `snapshot`.
"""
