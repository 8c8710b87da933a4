"""Numerics shared by the recommender and the node agent: histograms and windows."""
