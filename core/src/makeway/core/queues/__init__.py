"""Hierarchical queues: their configuration, which pods are in them, and which go for a lowered quota.

Pure.
"""
