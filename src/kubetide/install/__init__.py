"""What must be in a cluster for kubetide to run there: rights, workloads, services, custom resources."""
