"""All that tells an operator how the service does: metrics for Prometheus, logs, ids of requests. Never a decision."""
