"""Host to samples: each collector reads one kind of thing at its own interval."""
