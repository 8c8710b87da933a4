"""Who sent a request, and what it may do."""
