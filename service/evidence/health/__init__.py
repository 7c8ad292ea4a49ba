"""The health of a job's search: findings in plain words, each with what to do. Never what runs next, and no SQL."""
