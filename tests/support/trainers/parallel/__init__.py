"""Models that ranks train together, and functions that train them."""
