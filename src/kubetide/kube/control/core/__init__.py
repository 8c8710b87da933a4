"""Decisions of the controller frame, as pure functions."""
