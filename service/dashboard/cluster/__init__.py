"""The cluster: what runs, what waits and why, workers, and what is free. Never the page of one job."""
