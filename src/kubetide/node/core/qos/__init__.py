"""QoS strategies: pure functions from a node snapshot to a plan of kernel writes and evictions."""
