"""The pages of the recommendations: those there are, and each one with its evidence. Never how one is made."""
