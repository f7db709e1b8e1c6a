"""`makeway keys`: the keys of signatures, made and rotated."""
