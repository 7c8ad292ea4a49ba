"""Click prediction on a log of a user's: parsing, examples on disk, the model, and logs that are made up. Never what
other workloads could use: that is in `trainers.data`."""
