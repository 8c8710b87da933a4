"""Batch and mid resources: how much of a node may be overcommitted."""
