"""`makeway mode`: what is in force, by what and since when; the brake."""
