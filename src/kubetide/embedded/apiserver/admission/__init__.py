"""Mutating and validating admission: webhooks and built-in rules that change a write."""
