"""Use cases about jobs as records: deleted, archived, cloned, thinned, and notes of their trials. Never what a job does
while it runs."""
