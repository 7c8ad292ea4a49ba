"""Runs of jobs whose trials others train: they answer clients through SQL, and hold no device, Ray or torch."""
