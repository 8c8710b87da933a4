"""Learned headroom of autoscalers at work: what is kept, saved, and read from the past."""
