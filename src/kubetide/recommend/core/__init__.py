"""Pure: workloads and their usage in, rows out."""
