"""The planner's process: watches, plan requests, control states, ledgers, metrics, health.

The only folder that talks to NATS and the API server on its own. May import every folder but `offline`;
only the CLI starts it.
"""
