"""Why nothing helps: reasons counted node by node, the exempt pods, what to wait for, and the text.

It may import all of `plan` but the planner.
"""
