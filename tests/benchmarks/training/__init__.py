"""Benchmarks of whole trainings, and what they share: workloads, runs, tuning."""
