"""`makeway history` and `watch`: what has happened, from the streams."""
