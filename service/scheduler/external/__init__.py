"""Runs of jobs whose trials clients train: they answer the clients through SQL, and never use a device, Ray or
torch."""
