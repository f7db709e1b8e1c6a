"""Orders come in here, and what else the evictor hears: control states, outcomes, proposals of repairs."""
