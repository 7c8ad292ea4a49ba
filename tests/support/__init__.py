"""Helpers of the suite itself: how its tests are shared out, watched and measured. No tests."""
