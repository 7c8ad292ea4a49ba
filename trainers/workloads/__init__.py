"""The built-in workloads, one file per family. Described in `trainers.workloads.registry`; imported only where they
train."""
