"""What the API server and the kubelet report about this node."""
