"""The requests, by subject, each declared once for both clients. Never a connection: the clients send them."""
