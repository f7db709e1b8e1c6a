"""`makeway quarantine`: messages that could not be read, and what to do with them."""
