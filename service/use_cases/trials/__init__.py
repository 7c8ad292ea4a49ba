"""One trial as it is looked at: its curve, its config to paste, and what its ranks print. Never a move of its state."""
