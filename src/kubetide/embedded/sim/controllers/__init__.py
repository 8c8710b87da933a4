"""The controllers of a simulated cluster: what kube-controller-manager does, as far as workloads need it."""
