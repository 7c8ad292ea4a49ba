"""The state that the optimizer keeps of each parameter: blocks, factors, quantisation, buckets, times of refresh,
saving. Never the arithmetic of a step."""
