"""The requests, by subject, each declared once for both clients. Never a connection: the clients send them, and what
takes several requests in a row, as sending code does, is theirs."""
