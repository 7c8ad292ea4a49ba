"""What the optimizer keeps of each parameter, and how: blocks, factors, quantisation, buckets, times of refresh,
saving. Never the arithmetic of a step."""
