"""Bodies in Kubernetes' protobuf: which fields its messages have, and reading them as the objects they stand for."""
