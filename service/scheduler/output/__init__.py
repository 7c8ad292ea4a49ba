"""Capture of the output of ranks: they write it to files, a reader on the same machine reads it, and SQL keeps it.
Never shown here."""
