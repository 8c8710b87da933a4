"""Which pods to change now, and how gently."""
