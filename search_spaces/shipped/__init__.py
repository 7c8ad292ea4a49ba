"""The presets: the spaces that come with the package, and what several of them share."""
