"""Several jobs side by side: what was asked of them, what they found, and what it cost. Never what decides in a job."""
