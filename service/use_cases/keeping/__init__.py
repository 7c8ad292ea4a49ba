"""Use cases about jobs as records: deleted, archived, cloned. What a job does while it runs is not decided here."""
