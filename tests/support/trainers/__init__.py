"""What tests of training share: small trials, ranks, workloads and data. Never a test."""
