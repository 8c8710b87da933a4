"""The QoS protocol between scheduler, controllers and node agent."""
