"""The controller frame: queues, leader election, events, start and stop."""
