"""The ranks of a trial as Ray actors, and what they hear while they train. Never which trial they train."""
