"""The browser that pages are tested in."""

from __future__ import annotations

import shutil

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Names of the command, the best first: the shell is the same browser without windows, and takes a quarter less
time."""


def find_chromium() -> str:
    """The path of an installed Chromium. Raises: RuntimeError: there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise RuntimeError("no Chromium found; install it: apt-get install chromium-headless-shell")
    return found
