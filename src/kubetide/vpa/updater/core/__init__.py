"""Which pods are changed now, how, and why not the others: pure decisions."""
