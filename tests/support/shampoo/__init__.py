"""Helpers that tests of the optimizer share: the textbook implementation, members, settings, ranks. Never a test."""
