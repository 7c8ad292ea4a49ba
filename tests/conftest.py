"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# An example that takes long on a busy machine is no failure.
settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")
