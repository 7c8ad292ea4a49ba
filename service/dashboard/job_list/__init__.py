"""The list of jobs: filters and pages of it. Never the page of one of them."""
