"""Observations: a long conversation as a short, dated log with its sources."""
