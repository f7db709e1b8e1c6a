"""The page: what makeway does, in a browser. It reads, and changes nothing."""
