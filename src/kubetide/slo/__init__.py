"""How much of a node may be shared: the cluster side."""
