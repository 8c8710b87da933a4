"""`kubetide doctor`: what is wrong in a cluster, object by object and component by component, with the fix."""
