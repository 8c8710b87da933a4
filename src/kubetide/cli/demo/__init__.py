"""`kubetide demo`: a working day on a simulated cluster."""
