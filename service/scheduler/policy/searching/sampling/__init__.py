"""Samplers in Optuna's form, and search spaces in Optuna's form. No study is kept here: `searching.study` has it."""
