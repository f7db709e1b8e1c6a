"""Signatures of messages: the keys, and what a process makes of them."""
