"""The API under measurement: its process, what it is filled with, and those who ask."""
