"""`kubetide dashboard`: the cluster in a browser."""
