"""What the page shows, as values: from messages and snapshots to views. Pure."""
