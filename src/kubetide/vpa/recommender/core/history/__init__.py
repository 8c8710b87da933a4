"""History that was stored: checkpoints brought back to the present, and what Prometheus is asked for."""
