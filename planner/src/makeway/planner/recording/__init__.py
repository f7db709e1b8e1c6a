"""What a planner saw while it decided, kept for a while so that each decision can be made again."""
