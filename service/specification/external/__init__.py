"""Trials that others train: what a job says of them, and the messages between their clients and the job's run.

Only their shape: who writes and reads them in SQL is the store.
"""
