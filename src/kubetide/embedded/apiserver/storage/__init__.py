"""The versioned store and its journal on disk."""
