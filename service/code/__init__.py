"""Code that comes with jobs: which files of a directory go along, how they travel, and where they are laid out.

Nothing here imports any of it, and nothing here knows of HTTP or SQL.
"""
