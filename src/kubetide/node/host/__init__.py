"""The machine under the agent: which files there are, how they are read and written."""
