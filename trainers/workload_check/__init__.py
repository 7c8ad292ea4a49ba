"""Checks that a workload keeps the rules of `trainers.workloads.registry.Workload`: `python -m trainers.workload_check
NAME`."""
