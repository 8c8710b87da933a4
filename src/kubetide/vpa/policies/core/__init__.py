"""Which VPAs a namespace should have, decided without I/O."""
