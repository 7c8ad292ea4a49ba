"""What benchmarks of many ranks share: large models, and simulations of what ranks hold and send. Never a script."""
