"""`makeway history`: what has happened, and happens, from the streams."""
