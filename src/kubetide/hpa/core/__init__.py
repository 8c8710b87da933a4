"""The decision of the horizontal autoscaler: pure functions from an observation to a replica count."""
