"""The updater: which pods are changed now, how, and why not the others."""
