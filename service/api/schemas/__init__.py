"""Bodies of requests and responses, by subject. Never a route, and never a decision."""
