"""Settings that people change: tokens, webhooks, projects with their quotas; and who is let in."""
