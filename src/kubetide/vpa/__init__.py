"""How big each pod: the vertical autoscaler."""
