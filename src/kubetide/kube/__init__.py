"""Everything needed to read and write a cluster: transport, client, informers, queues, leases."""
