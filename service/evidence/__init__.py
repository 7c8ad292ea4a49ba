"""Evidence from stored results: which config won, how sure that is, and the words and code that say so. Never what runs
next, and no SQL."""
