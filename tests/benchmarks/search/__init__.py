"""Helpers that benchmarks of the search share: learning curves, policies and their simulation. Never a script."""
