"""Protocols and devices at the edge of the agent: container runtimes, performance counters, GPUs."""
