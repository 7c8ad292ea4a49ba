"""Benchmarks of many ranks, and what they share: large models, and simulations of what ranks hold and send."""
