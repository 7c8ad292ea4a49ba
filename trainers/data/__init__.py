"""Reading for any workload: the order of examples, files, prepared data, worker processes. Never the meaning of
examples, and no workload by name."""
