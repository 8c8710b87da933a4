"""`kubetide explain`: why an autoscaler, a pod or a node is the size it is."""
