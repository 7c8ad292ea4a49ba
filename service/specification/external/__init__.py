"""Trials that others train: what a job says of them, and the messages between their clients and the job's run.

Their shape alone, never who writes and reads them in SQL: that is the store.
"""
