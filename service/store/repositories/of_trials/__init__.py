"""The stored trials of jobs: rows, lists, columns, measurements and output. Never a decision."""
