"""What the API server and the kubelet say about this node."""
