"""Checks of how readable a page is. Never what it says."""
