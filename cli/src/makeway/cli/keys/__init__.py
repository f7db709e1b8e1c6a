"""`makeway keys`: the keys of signatures, made, shown and rotated."""
