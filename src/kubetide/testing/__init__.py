"""Builders, a whole cluster in virtual time and pytest fixtures, shipped for users too."""
