"""What a simulation compares, and how it is counted: pure."""
