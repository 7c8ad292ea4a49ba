"""The sentences on what speaks against relying on a recommendation. Never a verdict."""
