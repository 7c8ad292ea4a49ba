"""Jobs as they happen in life, told to a database: whole ones, what one trial goes through, copies for many tests.
Never a process."""
