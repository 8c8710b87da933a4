"""Colocation profiles: how pods become batch or mid pods when they are created."""
