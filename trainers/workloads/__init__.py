"""The built-in workloads, one file per family. Described in `trainers.workload`; imported only where they train."""
