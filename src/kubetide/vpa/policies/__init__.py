"""VPAs for whole namespaces: a label switches them on, and every workload gets one that is kept in step."""
