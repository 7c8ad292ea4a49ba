"""Capture of all that ranks print: written to files by the ranks, read beside them, kept in SQL. Never shown here."""
