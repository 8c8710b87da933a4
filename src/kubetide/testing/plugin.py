"""pytest fixtures that come with kubetide."""
