"""Samplers as Optuna has them, and how Optuna knows a search space. No study is kept here: `searching.study` has it."""
