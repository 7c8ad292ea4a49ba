"""Benchmarks of what answers are worth, on learning curves that are stored."""
