"""A client of the Kubernetes API: transport, credentials, TLS, discovery, typed verbs."""
