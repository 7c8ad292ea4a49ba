"""Benchmarks of the search, and what they share: learning curves, policies and their simulation."""
