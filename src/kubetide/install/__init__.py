"""What must be in a cluster for kubetide to run there: RBAC permissions, workloads, services, custom resources."""
