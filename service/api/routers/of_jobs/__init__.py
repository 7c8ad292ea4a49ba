"""Routes of jobs: submitted, kept, and what their trials come to together."""
