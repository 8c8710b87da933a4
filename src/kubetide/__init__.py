"""kubetide keeps Kubernetes workloads the right size."""

__version__ = "0.1.0"
