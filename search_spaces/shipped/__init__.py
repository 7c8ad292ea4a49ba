"""The presets: the spaces that come with the package, and what several of them share. Never the check of a space."""
