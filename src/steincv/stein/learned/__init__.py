"""Coordinates learned from the scores: maps in which a posterior looks more like a normal distribution."""
