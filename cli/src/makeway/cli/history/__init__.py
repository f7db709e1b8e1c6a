"""`makeway history`, `audit` and `watch`: what has happened, from the streams."""
