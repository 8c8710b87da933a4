"""How much of a node may be shared: the agent on each node."""
