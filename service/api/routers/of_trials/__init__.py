"""Routes of the trials of a job, and of what they leave behind. Never what a job's trials come to together."""
