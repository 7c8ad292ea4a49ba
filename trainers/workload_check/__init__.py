"""Checks that a workload keeps the rules of `trainers.workload.Workload`: `python -m trainers.workload_check NAME`."""
