"""A Kubernetes API server and a simulated cluster in one process."""
