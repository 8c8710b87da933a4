"""The `kubetide` command."""
