"""What tests of the service share: jobs as they happen, worker processes, servers, simulations. Never a test."""
