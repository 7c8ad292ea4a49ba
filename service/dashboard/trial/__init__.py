"""The pages of one trial."""
