"""What a plan means, without any I/O."""
