"""Evictions under pressure: which features ask for how much, whom, and in which order."""
