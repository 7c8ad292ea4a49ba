"""Helpers of benchmarks of many ranks: large models, and simulations of what ranks hold and send. Never a script."""
