"""Polynomial control variates."""
