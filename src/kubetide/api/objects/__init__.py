"""Kubernetes objects, reduced to the fields that kubetide reads."""
