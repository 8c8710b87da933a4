"""The NodeResourceTopology of a node: zones, CPU topology, share pools, what is reserved and for whom."""
