"""Trials that a client trains: its loop of either client, and the agent around a command. Never how one is chosen."""
