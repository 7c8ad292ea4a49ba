"""Tests of trials that others train."""
