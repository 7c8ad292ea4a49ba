"""The memory of a trial: its peak as it was, and what it needs at least, before it runs. Never other processes'."""
