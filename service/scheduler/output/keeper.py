"""The thread that copies the output of a job's ranks from their files to SQL."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from service.errors import NotFound
from service.scheduler.output.lines import lines_of
from service.scheduler.output.reading import Piece, kept_names
from service.store.session import DATABASE_ERRORS, Database
from service.use_cases.trials.rank_output import Printed, bytes_per_rank_of, keep_output, kept_up_to

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Time between two readings of the files."""
LAST_LOOKS = 20
"""The most readings after the end of the ranks; each reads a part of the rest."""
SHORTEST_SECRET = 8
"""The fewest characters of a variable's value that is hidden."""
_OF_SECRETS = re.compile(
    r"(?:SECRET|PASSWORD|PASSWD|TOKEN|CREDENTIALS?|ACCESS_KEY|API_KEY|PRIVATE_KEY)$", re.IGNORECASE
)


class OutputSource(Protocol):
    """The files of a job's ranks, wherever they are."""

    def read(self, kept: Mapping[str, int]) -> list[Piece]:
        """Reads the output beyond `kept`, as `reading.read_output` says."""
        ...

    def remove(self) -> None:
        """Removes them, after everything is kept and nobody writes any more."""
        ...


class OutputKeeper:
    """Keeps the output of a job's ranks while they run, and the rest after their end."""

    def __init__(self, database: Database, job_id: str, source: OutputSource, *, bytes_per_rank: int) -> None:
        self._database = database
        self._job_id = job_id
        self._source = source
        self._bytes_per_rank = bytes_per_rank
        self._kept: dict[str, int] = {}
        self._trials: set[int] = set()
        """The trials whose positions in files were looked up."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._secrets = secrets_of(os.environ)
        self._fails = False

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread once it has kept the rest of the output; call it after the end of the ranks."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            self.look()
        self.keep_all()

    def keep_all(self) -> None:
        """Keeps the rest of the output of ranks that have ended, and removes their files. If the database fails, the
        files stay: the next run of the job, or the next worker, keeps their contents.
        """
        for _ in range(LAST_LOOKS):
            if not self.look():
                break
        if not self._fails:
            self._source.remove()

    def look(self) -> bool:
        """Keeps the current output; True if there was any."""
        try:
            pieces = self._source.read(self._kept)
            if pieces:
                self._keep(pieces)
        except (OSError, NotFound, *DATABASE_ERRORS) as error:
            if not self._fails:  # once, not at every attempt during a long outage
                logger.warning("what the ranks of job %s print cannot be kept now: %s", self._job_id, error)
            self._fails = True
            return False
        self._fails = False
        return bool(pieces)

    def _keep(self, pieces: Sequence[Piece]) -> None:
        """Writes pieces to SQL, unless they are already there."""
        unknown = {piece.source.trial for piece in pieces} - self._trials
        if unknown:
            # An earlier reader may have kept them before it was killed.
            with self._database.reading() as session:
                known = kept_up_to(session, self._job_id, unknown)
                if not self._trials:
                    self._bytes_per_rank = bytes_per_rank_of(session, self._job_id, bytes_per_rank=self._bytes_per_rank)
            self._trials |= unknown
            self._kept = known | self._kept
            if any(str(piece.source) in known for piece in pieces):
                return  # the next reading begins where that one ended
        printed = [
            Printed(
                piece.source.trial,
                piece.source.rank,
                piece.source.stream,
                str(piece.source),
                piece.ends_at,
                piece.omitted_bytes,
                lines_of(piece.content, secrets=self._secrets),
            )
            for piece in pieces
        ]
        with self._database.writing() as session:
            keep_output(session, self._job_id, printed, bytes_per_rank=self._bytes_per_rank, now=self._database.now())
        self._kept |= kept_names(pieces)


def secrets_of(variables: Mapping[str, str]) -> list[str]:
    """The values of environment variables that ranks inherit and that nobody should read: variables with names of
    secrets, and passwords in URLs; the longest first."""
    found = {value for name, value in variables.items() if _OF_SECRETS.search(name)}
    for value in variables.values():
        if "://" in value and "@" in value:
            try:
                found.add(urlsplit(value).password or "")
            except ValueError:  # it is not a URL after all
                continue
    return sorted((value for value in found if len(value) >= SHORTEST_SECRET), key=lambda value: (-len(value), value))
