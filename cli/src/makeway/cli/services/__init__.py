"""`makeway planner` and `makeway evictor`: the processes, from options and environment."""
