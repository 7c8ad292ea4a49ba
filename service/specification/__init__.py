"""What a user may ask for, and the plan that follows from it. Never what became of it, and no SQL."""
