"""The arithmetic of a step, from the gradient to the new weights: statistics, refreshes, grafting, rounding. Never
how state is laid out, and never ranks."""
