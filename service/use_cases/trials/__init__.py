"""Views of one trial: its curve, its config to paste, and the output of its ranks. Never a change of its state."""
