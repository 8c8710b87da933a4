"""Predicted peaks of the node, its tiers and its pods."""
