"""`kubetide node`: the agent of one node, its audit and its status."""
