"""Benchmarks of a step, and what they share: models' shapes, contestants, formulas and counts."""
