"""Claims jobs and runs them as Ray Tune experiments."""
