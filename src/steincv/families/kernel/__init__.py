"""Kernel control variates."""
