"""The list of jobs: filters and pages of it."""
