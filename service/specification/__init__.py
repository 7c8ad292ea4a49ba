"""The specification of a job, and the plan that follows from it. Never the outcome of a job, and no SQL."""
