"""The trials of an Optuna study, read from a database or a journal file of Optuna's, which this imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from service.domain import Direction
from service.errors import InvalidInput
from service.imports.found import MAX_SOURCE_LENGTH, Found, FoundTrial, LeftOut
from service.store.foreign import ForeignDatabase, foreign_database, foreign_sqlite_file, is_sqlite
from trainers.config import is_usable

OPTUNA_TABLES = ("studies", "trials", "version_info", "alembic_version")
"""The tables of a database of Optuna's, any of which Optuna would make if it were missing."""
_DIRECTIONS = {
    optuna.study.StudyDirection.MINIMIZE: Direction.MINIMIZE,
    optuna.study.StudyDirection.MAXIMIZE: Direction.MAXIMIZE,
}


def trials_of_optuna(storage: str, *, study_name: str | None) -> Found:
    """The completed trials of a study of Optuna's with one objective. Nothing is written to its storage.

    Args:
        storage: a URL, or the path of a SQLite or a journal file.
        study_name: None: the only one there is.

    Raises:
        InvalidInput: there is no such study, it has several objectives, or the storage cannot be read.
    """
    if "://" in storage:
        database = foreign_database(storage)
        with _database(database) as opened:
            return _trials(opened, study_name, shown=database.shown, place="Optuna")
    path = Path(storage)
    if not path.is_file():
        raise InvalidInput(storage, "is neither a URL nor a file")
    try:
        if not is_sqlite(path):
            return _trials(_journal(path), study_name, shown=storage, place=path.name)
    except OSError as error:
        raise InvalidInput(storage, error.strerror or str(error)) from error
    with _database(foreign_sqlite_file(path)) as opened:
        return _trials(opened, study_name, shown=storage, place=path.name)


@contextmanager
def _database(database: ForeignDatabase) -> Iterator[BaseStorage]:
    """Optuna's storage in a database, without the tables that Optuna would make.

    Raises:
        InvalidInput: it has none of Optuna's, or cannot be read.
    """
    if not database.has_tables(OPTUNA_TABLES):
        raise InvalidInput(database.shown, "holds no study of Optuna's: there are no such tables")
    with database.faults_told(), _causes():
        opened = RDBStorage(database.url, engine_kwargs=database.engine_options, skip_table_creation=True)
        try:
            yield opened
        finally:
            opened.engine.dispose()


@contextmanager
def _causes() -> Iterator[None]:
    """Raises what Optuna hides behind its word for any error of a database."""
    try:
        yield
    except StorageInternalError as error:
        raise error.__cause__ or error from None


def _journal(path: Path) -> BaseStorage:
    try:
        return JournalStorage(JournalFileBackend(str(path)))  # which reads all of it
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError) as error:
        # Optuna takes for granted that each line is one of its own.
        raise InvalidInput(
            str(path), "is no journal of Optuna's and no SQLite file; the name of a table ends with .csv"
        ) from error


def _trials(opened: BaseStorage, study_name: str | None, *, shown: str, place: str) -> Found:
    """The trials of the study of that name.

    Args:
        shown: the storage, in messages.
        place: the storage, in what is said of where a trial comes from.
    """
    names = [study_name] if study_name is not None else optuna.get_all_study_names(opened)
    if not names:
        raise InvalidInput(shown, "holds no study of Optuna's")
    if len(names) > 1:
        raise InvalidInput("--study", f"must say which study: {', '.join(names[:40])}")
    try:
        study = optuna.load_study(study_name=names[0], storage=opened)
    except KeyError as error:
        raise InvalidInput("--study", f"there is no study {study_name!r}") from error
    if len(study.directions) > 1:
        raise InvalidInput(
            "--study", f"{names[0]!r} has {len(study.directions)} objectives: only a study with one can be imported"
        )
    found = Found(f"the study {names[0]!r}", _DIRECTIONS.get(study.direction))
    source = f"{place}: {names[0]}"[:MAX_SOURCE_LENGTH]
    for trial in study.get_trials(deepcopy=False):
        if trial.state is not optuna.trial.TrialState.COMPLETE:
            found.leave_out(LeftOut.NOT_COMPLETED)
        elif trial.value is None or not is_usable(trial.value):
            found.leave_out(LeftOut.NO_VALUE)
        else:
            values = {
                name: value
                for name, value in trial.params.items()
                if value is None or isinstance(value, str | int | float | bool)
            }
            found.trials.append(FoundTrial(source, trial.number, values, trial.value))
    return found
