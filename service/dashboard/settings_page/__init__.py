"""Settings that people change: tokens, webhooks, projects with their quotas; and who is let in. No setting of
the server stands here: those are given when it starts.
"""
