"""Caches of cluster state: list and watch into indexed stores."""
