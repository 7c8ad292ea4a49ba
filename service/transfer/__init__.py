"""Knowledge of tuned models, moved to one that was never tuned: features, distance, scaling rules, ranked configs.
Pure functions of plain values; never SQL, HTTP or torch."""
