"""What containers use, as it comes: read, checked against what is possible, and fed to the model."""
