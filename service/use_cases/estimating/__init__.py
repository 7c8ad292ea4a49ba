"""Estimates of what a job will take: time, memory, and which model it is. Never what it has taken."""
