"""Use cases about jobs as records: deleted, archived, cloned, thinned. Never what a job does while it runs."""
