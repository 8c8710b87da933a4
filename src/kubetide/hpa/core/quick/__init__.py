"""Faster ways to what `decide` decides, which is the oracle of their tests."""
