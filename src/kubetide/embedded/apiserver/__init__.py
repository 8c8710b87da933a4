"""A Kubernetes API server in Python: raw objects, discovery, watch, patch, subresources, CRDs, admission."""
