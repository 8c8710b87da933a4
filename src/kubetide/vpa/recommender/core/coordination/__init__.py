"""Sizes for workloads that an HPA scales on CPU utilization: one plan for how many and how big."""
