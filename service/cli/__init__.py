"""The command line: commands, job files, what the terminal shows, the demo. Never a rule that the API needs, too."""
