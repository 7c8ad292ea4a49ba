"""Commands of whoever runs the service: processes, database, tokens, backups, the demo. Never those of its users."""
