"""The trials of an Optuna study, read from any storage of Optuna's, which this imports."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from service.domain import Direction
from service.errors import InvalidInput
from service.imports.found import MAX_SOURCE_LENGTH, Found, FoundTrial, LeftOut

SQLITE = "sqlite:///"
_DIRECTIONS = {
    optuna.study.StudyDirection.MINIMIZE: Direction.MINIMIZE,
    optuna.study.StudyDirection.MAXIMIZE: Direction.MAXIMIZE,
}


def trials_of_optuna(storage: str, *, study_name: str | None) -> Found:
    """The completed trials of a study of Optuna's with one objective.

    Args:
        storage: a URL, or the path of a journal file.
        study_name: None: the only one there is.

    Raises:
        InvalidInput: there is no such study, or it has several objectives.
    """
    if "://" not in storage and not Path(storage).is_file():
        raise InvalidInput(storage, "is neither a URL nor a file")
    if storage.startswith(SQLITE) and not Path(storage.removeprefix(SQLITE).partition("?")[0]).is_file():
        raise InvalidInput(storage, "there is no such file")  # Optuna would make one
    opened = storage if "://" in storage else JournalStorage(JournalFileBackend(storage))
    try:
        names = [study_name] if study_name is not None else optuna.get_all_study_names(opened)
        if len(names) != 1:
            raise InvalidInput("study", f"must say which study: {', '.join(names[:40]) or 'there is none'}")
        study = optuna.load_study(study_name=names[0], storage=opened)
    except KeyError as error:
        raise InvalidInput("study", f"there is no study {study_name!r}") from error
    if len(study.directions) > 1:
        raise InvalidInput("study", f"{names[0]!r} has {len(study.directions)} objectives")
    found = Found(f"the study {names[0]!r}", _DIRECTIONS.get(study.direction))
    source = f"{Path(storage).name if opened is not storage else 'Optuna'}: {names[0]}"[:MAX_SOURCE_LENGTH]
    for trial in study.get_trials(deepcopy=False):
        if trial.state is not optuna.trial.TrialState.COMPLETE:
            found.leave_out(LeftOut.NOT_COMPLETED)
        elif trial.value is None or not math.isfinite(trial.value):
            found.leave_out(LeftOut.NO_VALUE)
        else:
            values = {
                name: value
                for name, value in trial.params.items()
                if value is None or isinstance(value, str | int | float | bool)
            }
            found.trials.append(FoundTrial(source, trial.number, values, trial.value))
    return found
