"""CEL: grammar, evaluation, and where it decides."""
