"""Pods grouped by what other pods' constraints see of them.

It may import `columns` and `bounds` of the snapshot.
"""
