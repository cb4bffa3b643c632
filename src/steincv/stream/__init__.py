"""Draws in files larger than memory: read in chunks, twice, and never held."""
