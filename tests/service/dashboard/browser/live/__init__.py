"""Pages that stay open: while things happen, and while the service is away."""
