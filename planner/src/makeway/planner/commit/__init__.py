"""Storing the orders that bridges ask for: judged by the rules of plans, answered by what is stored."""
