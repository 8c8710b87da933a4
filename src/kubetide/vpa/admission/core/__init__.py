"""Admission reviews as pure functions: a pod and its recommendation to a patch."""
