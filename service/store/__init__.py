"""SQL: models, migrations, sessions and every statement the service runs. Never a decision."""
