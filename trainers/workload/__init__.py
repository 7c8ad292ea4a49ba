"""What a workload is, for whoever writes one: its description, the template, a user's own class. Never a built-in
workload."""
