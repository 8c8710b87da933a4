"""Requests and the verbs that answer them."""
