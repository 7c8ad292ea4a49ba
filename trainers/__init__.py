"""Training code: workloads, the loop, checkpoints and ranks. Knows nothing of Ray, SQL or HTTP."""
