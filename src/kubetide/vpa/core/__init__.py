"""What recommender, updater and admission share: policies, capping, limits, matching."""
