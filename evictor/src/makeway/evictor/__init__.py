"""evictor."""
