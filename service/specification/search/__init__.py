"""The search of a job: its sampler, its pruner and its populations, checked. Never what they choose."""
