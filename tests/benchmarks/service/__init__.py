"""Benchmarks of the service: its API, its pages, its scheduler and its database."""
