"""What a node overcommits and what its NodeSLO says: pure decisions."""
