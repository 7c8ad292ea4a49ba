"""Realistic jobs, written to a database: whole jobs, the course of one trial, copies for many tests. Never a
process."""
