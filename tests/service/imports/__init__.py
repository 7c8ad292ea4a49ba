"""Tests of trials of other studies."""
