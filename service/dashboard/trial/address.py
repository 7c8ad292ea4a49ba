"""The number of a trial, as addresses of pages have it."""

from __future__ import annotations

from service.errors import TrialNotFound

LARGEST_NUMBER = 2**31 - 1


def trial_number(job_id: str, text: str) -> int:
    """A trial's number.

    Raises:
        NotFound: no trial can have it.
    """
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_NUMBER))
    if not is_number or int(text) > LARGEST_NUMBER:
        raise TrialNotFound(job_id, text)
    return int(text)
