"""`makeway check`: what an installation lacks, part by part."""
