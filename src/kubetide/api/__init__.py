"""Typed vocabulary of the Kubernetes objects that kubetide reads, and the values they are made of."""
