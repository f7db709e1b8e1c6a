"""`makeway simulate` and `replay`: plans on a recorded or imagined cluster."""
