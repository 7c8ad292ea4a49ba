"""The rights of requests: callers and scopes, tokens, projects, sessions, quotas, rate limits, what a
job may name, the audit trail.

Use cases and decisions; never SQL, and nothing of HTTP but the names of its methods and paths.
"""
