"""Telling others' servers what happens to jobs: to where that is allowed, signed, and again when it fails. Never what
is told: events are."""
