"""The workload as whoever writes one sees it: its protocols, its description, its batches, the template, a user's own
class. Never a built-in workload."""
