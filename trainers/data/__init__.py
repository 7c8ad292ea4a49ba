"""What any workload reads with: the order of examples, files, prepared data, worker processes. Never what the
examples mean, and no workload by name."""
