"""The streams and their consumers: what they are, and how they are kept so."""
