"""A config in every format: as data, as a command that trains it, and in the words of other optimizer packages. None of
them is imported here, and no config is chosen.
"""
