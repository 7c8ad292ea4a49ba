"""What a job will take, foretold: time, memory, and which model it is. Never what it has taken."""
