"""A search without processes: policies over simulated curves, spaces, the calls that Tune makes. Never a database."""
