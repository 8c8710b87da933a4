"""Rows as text: for terminals, programs, reports and CI."""
