"""Use cases about jobs as records: deleting, archiving, cloning and thinning them, and notes about their trials. Never
what a job does while it runs."""
