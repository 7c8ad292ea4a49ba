"""What our searcher, pruner and recorder have in common towards Ray Tune."""

from __future__ import annotations

from typing import Any


class TuneAdapter:
    """An object whose pickles are empty.

    Tune pickles all it is given, to be able to restore an experiment from files. A job is restored from SQL, and
    database connections cannot be pickled.
    """

    def __getstate__(self) -> dict[str, Any]:
        return {}
