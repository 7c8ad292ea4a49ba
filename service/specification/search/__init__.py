"""How a job searches: its sampler, its pruner and its populations, checked. Never what they choose."""
