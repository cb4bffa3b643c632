"""Stein's identity, the coordinates it is used in, and the folds that keep fitting and judging apart."""
