"""Routes of jobs: submitted, kept, and what their trials come to together. Never a route of one trial."""
