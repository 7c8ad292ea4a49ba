"""Checks of the readability of a page. Never of its content."""
