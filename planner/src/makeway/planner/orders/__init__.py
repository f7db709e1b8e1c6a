"""Which orders are in flight, what became of them, and which preemptors may have another."""
