"""The report of a job: one HTML file that needs nothing else, for a pull request or a paper. Never live."""
