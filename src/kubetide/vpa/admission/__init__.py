"""New pods get the recommended size; VPA objects get checked."""
