"""The built-in workloads, one folder per family, and the registry of all workloads. Descriptions load without torch,
the rest only where it trains. Never anything that a workload of a user's would need: that is in `trainers.data`."""
