"""Insights into a job's hyperparameters: computed from stored rows beside the job's run, by pure
functions, and stored for those who look. Never what a search decides."""
