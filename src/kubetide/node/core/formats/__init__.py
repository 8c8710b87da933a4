"""Kernel text to values and back: one module per kind of file, no I/O."""
