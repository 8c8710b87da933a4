"""What the node agent decides: pure functions from values to plans and reports."""
