"""Samples over time: a ring in memory, aggregates over windows, compressed history on disk."""
