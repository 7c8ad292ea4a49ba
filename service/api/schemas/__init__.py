"""What goes over HTTP, by subject. Never a route, and never a decision."""
