"""Draws, scores and names; values of f; where draws come from: memory or a file."""
