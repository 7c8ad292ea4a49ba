"""The lengths of a job's trials, and the times of their steps, as values. None of it reads a specification."""
