"""The pages of one trial. Never the table of all."""
