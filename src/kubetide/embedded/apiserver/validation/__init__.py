"""Defaults, schemas, built-in rules and strictness: what is accepted, and what it becomes."""
