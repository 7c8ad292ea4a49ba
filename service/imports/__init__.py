"""Trials of other programs' studies, read for a job to begin with: never as evidence."""
