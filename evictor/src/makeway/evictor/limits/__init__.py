"""What bounds the evictor: modes, caps, the breaker, slots and places."""
