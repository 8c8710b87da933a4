"""The metrics APIs, served from kubetide's own agents and from kubelets: `kubetide run metrics`."""
