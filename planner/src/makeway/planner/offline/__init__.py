"""Plans without a running planner: on a cluster read once, or on a dump of one."""
