"""The installation: its version, its extras, the command, and whether the packages found are ours. Never what training
does: it runs where nothing but torch is installed, on the standard library.
"""
