"""How many pods: the horizontal autoscaler."""
