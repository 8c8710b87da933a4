"""What a replay decides and counts, on arrays alone: policies, the loop over a block of containers, figures."""
