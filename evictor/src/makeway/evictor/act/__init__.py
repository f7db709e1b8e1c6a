"""Carrying orders out: what is read of the API server and the bus, what is written, and in which order."""
