"""The checker of workloads: `python -m trainers.workload_check NAME` checks that one keeps the rules of
`trainers.workload.protocol`. Never a part of training."""
