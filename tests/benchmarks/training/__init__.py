"""Helpers that benchmarks of training share: workloads, whole runs, tuning. Never a script."""
