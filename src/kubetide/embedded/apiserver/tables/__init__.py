"""Tables for people: the columns that `kubectl get` shows."""
