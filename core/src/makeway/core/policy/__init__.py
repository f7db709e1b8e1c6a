"""The policy: modes, protection, toleration, exemptions, the brake, and what they say of one pod.

Pure. Imports `k8s` and `config`.
"""
