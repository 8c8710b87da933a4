"""What tells more than a sample of usage does: heaps that never shrink, and what nodes know of their containers."""
