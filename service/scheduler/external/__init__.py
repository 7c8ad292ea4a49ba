"""Runs of jobs whose trials others train: they answer clients through SQL, and never hold a device, Ray or torch."""
