"""From samples to recommendations: pure functions and the model they work on."""
