"""Estimates of the time and memory that a job will take, and of the model that it trains. Never of the past."""
