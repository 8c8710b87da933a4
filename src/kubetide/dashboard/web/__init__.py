"""The dashboard in a browser: pages rendered here, small scripts, nothing from elsewhere."""
