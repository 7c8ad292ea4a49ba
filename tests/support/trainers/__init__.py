"""Helpers of the tests of training: small trials, ranks, workloads and data. Never a test."""
