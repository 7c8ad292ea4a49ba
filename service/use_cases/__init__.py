"""The use cases of users, workers and runs, most of them functions of a session. Never HTTP, and never a decision of
the search."""
