"""What the metrics server decides: which samples are believed, what they mean, how they are shown and to whom."""
