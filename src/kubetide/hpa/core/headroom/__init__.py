"""Headroom that is learned from a target's own forecast errors, and when it may speak."""
