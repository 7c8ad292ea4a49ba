"""Search policies as pure objects: what to try next, and which trials to pause, resume or stop. They start no trials,
and do not know Ray or SQL.
"""
