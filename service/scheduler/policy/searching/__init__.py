"""Search policies as pure objects: what to try next, and which trials to pause, resume or stop. None starts a trial,
and none knows of Ray or SQL.
"""
