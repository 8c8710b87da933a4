"""What a node can lend to batch and mid tier work."""
