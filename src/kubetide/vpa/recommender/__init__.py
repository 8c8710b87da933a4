"""What a container needs, learned from its usage."""
