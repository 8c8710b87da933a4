"""Scenarios and load: what arrives when, and what it costs."""
