"""Knowledge of tuned models, moved to others."""
