"""Insights into a job's hyperparameters: computed by pure functions from stored rows, in a thread of the job's run, and
stored for its pages. Never here: the decisions of a search."""
