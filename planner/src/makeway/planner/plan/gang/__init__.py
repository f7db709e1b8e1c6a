"""Room for all members of a pod group in one plan: where they go by who would have to go.

It may import everything of plans for single pods; nothing of those imports it.
"""
