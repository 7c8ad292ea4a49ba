"""Tests of the commands that set things up, and of their help."""
