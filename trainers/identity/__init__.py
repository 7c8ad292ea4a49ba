"""The identity of a trial: which model on which data, and where it was trained. Never hyperparameters."""
