"""Helpers that benchmarks of a step share: models' shapes, contestants, formulas and counts. Never a script."""
