"""Checks that a workload keeps the rules of `trainers.workload.protocol.Workload`: `python -m trainers.workload_check
NAME`."""
