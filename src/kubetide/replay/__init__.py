"""Replay: what a policy would have decided, period by period, fed with what happened.

Replay calls the pure cores of the capabilities, never their shells: what is judged here is what runs in a cluster.
"""
