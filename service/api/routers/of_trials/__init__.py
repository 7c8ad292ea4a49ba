"""Routes of the trials of a job, and of what they leave behind."""
