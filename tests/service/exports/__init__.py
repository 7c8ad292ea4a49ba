"""Tests of jobs as files."""
