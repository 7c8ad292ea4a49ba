"""The decisions of a job, from plain values: what it tries next, and when it stops. Never Ray, processes or SQL."""
