"""Helpers of the tests of the service: jobs as they happen, worker processes, servers, simulations. Never a test."""
