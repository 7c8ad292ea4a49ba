"""The state that the optimizer keeps for each parameter: blocks, factors, quantisation, buckets, refresh times, saving.
Never the arithmetic of a step."""
