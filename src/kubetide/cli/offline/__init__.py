"""Verbs that look at what happened instead of acting: record, replay, simulate, tune, recommend, plot."""
