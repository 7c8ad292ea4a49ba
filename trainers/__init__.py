"""Training: workloads, the loop, checkpoints and ranks. Never Ray, SQL or HTTP."""
