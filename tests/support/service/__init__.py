"""Helpers of the tests of the service: realistic jobs, worker processes, servers, simulations. Never a test."""
