"""What users and runs may change and read, each step a function of a session. Never HTTP, and never a decision of the
search."""
