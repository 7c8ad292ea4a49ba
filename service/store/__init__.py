"""SQL: models, sessions and every statement the service runs."""
