"""Helpers of the suite itself: distributing, watching and measuring its tests. No tests."""
