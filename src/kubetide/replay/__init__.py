"""Replay of recorded series under any policy, through the same cores that decide live."""
