"""Models that ranks train together, and how they do."""
