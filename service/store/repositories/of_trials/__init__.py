"""What is stored of the trials of jobs: rows, lists, columns, measurements and output. Never a decision."""
