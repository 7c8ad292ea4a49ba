"""`JobStorage`: the service's database as a storage of Optuna's, for whatever looks at studies."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search_spaces import SearchSpace
from service.domain import Side
from service.errors import ServiceError
from service.optuna_internals import FrozenStudy, id_in_storage
from service.optuna_storage import frozen
from service.optuna_storage.dimensions import Distributions, dimensions_of
from service.optuna_storage.study_ids import JobStudy, job_and_trial_number, job_number_of_study, studies_of
from service.settings import Settings
from service.specification.phases import spaces_of
from service.store.migrate import why_not_migrated
from service.store.repositories import StudyJob, StudyRepository, StudyTrial
from service.store.session import Database, is_new_file, why_not_supported

MAX_REMEMBERED = 8
"""Studies whose trials are remembered."""


class StudyIsReadOnly(ServiceError):
    """Something tried to write to a study of a job, which only its run does."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}: a job's study is read-only; `shampoo-tuner try`, `stop`, `retry` and `budget` change a job"
        )


class NoDatabase(ServiceError):
    """There is no database of the service at a URL, or it is of another version."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The trials of a study when it was last looked at."""

    rows: list[StudyTrial]
    dimensions: dict[Side, Distributions]
    trials: list[FrozenTrial]


class JobStorage(BaseStorage):
    """The jobs of a service as studies, read-only and live: each call shows what the database holds at that moment.

    The search of a job is the study of the job's id, each baseline `JOB/OPTIMIZER`, and the confirmation, once it has
    begun, `JOB/confirmation`: it repeats configs, and the search's best trial and importances stay what it found. A
    parameter is called as in the job's search space, with its conditions behind it where it has some; in a
    confirmation, those of a baseline's configs begin with `OPTIMIZER/`. `service.optuna_storage.dimensions` says how
    ranges and choices look.

    Trials are numbered from 0 in each study; `trial` among their attributes is their number in the job. One that is
    paused runs, one that has not begun, or is to be trained anew, waits. Failed and cancelled trials are FAIL, and a
    completed one without a number for each objective is PRUNED. Intermediate values are the first objective's, NaN
    where it was not finite.

    May be used by several threads.
    """

    def __init__(self, url: str | None = None) -> None:
        """Opens a database.

        Args:
            url: `sqlite:///...` or `postgresql+psycopg://...`; None: that of the service's settings, so
                `SHAMPOO_TUNER_DATABASE_URL`, or the embedded one.

        Raises:
            NoDatabase: there is none, or it is of another version.
        """
        url = Settings().resolved_database_url if url is None else url
        if not_supported := why_not_supported(url):
            raise NoDatabase(not_supported)
        if is_new_file(url):
            raise NoDatabase(f"there is no database yet: {url}")
        self._database = Database(url)
        if not_migrated := why_not_migrated(self._database):
            self._database.close()
            raise NoDatabase(not_migrated)
        self._spaces: dict[str, dict[Side, SearchSpace]] = {}
        """Of each job, by its id; a job's spaces never change."""
        self._remembered: OrderedDict[int, _Remembered] = OrderedDict()
        """By study, the one last looked at at the end."""
        self._lock = threading.Lock()
        """Of what is remembered."""

    def get_study_id_from_name(self, study_name: str) -> int:
        with self._reading() as studies:
            job = studies.job(study_name.partition("/")[0])
            found = [study for study in self._studies_of(studies, job) if study.name == study_name]
        if not found:
            raise KeyError(f"no study {study_name!r}")
        return found[0].id

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._found(study_id).name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return frozen.directions(self._found(study_id))

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return frozen.user_attributes(self._found(study_id))

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return frozen.system_attributes(self._found(study_id))

    def get_all_studies(self) -> list[FrozenStudy]:
        """The studies of all jobs, the newest job's first."""
        with self._reading() as studies:
            jobs = studies.jobs()
            self._learn_spaces(studies, jobs)
        return [frozen.frozen_study(study) for job in jobs for study in studies_of(job, self._sides(job))]

    def get_trial(self, trial_id: int) -> FrozenTrial:
        job_number, number = job_and_trial_number(trial_id)
        with self._reading() as studies:
            job = studies.numbered(job_number)
            row = None if job is None else studies.trial(job.id, number)
            if row is None:
                raise KeyError(f"no trial {trial_id}")
            holds = [s for s in self._studies_of(studies, job) if s.phase is row.phase and s.side in (None, row.side)]
            trials = self._trials(studies, holds[0])
        return copy.deepcopy(next(trial for trial in trials if id_in_storage(trial) == trial_id))

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        with self._reading() as studies:
            trials = self._trials(studies, self._find(studies, study_id))
        wanted = [trial for trial in trials if states is None or trial.state in states]
        return copy.deepcopy(wanted) if deepcopy else wanted

    def remove_session(self) -> None:
        """Closes the connections; the next call opens new ones."""
        self._database.close()

    @contextmanager
    def _reading(self) -> Iterator[StudyRepository]:
        with self._database.reading() as session:
            yield StudyRepository(session)

    def _found(self, study_id: int) -> JobStudy:
        with self._reading() as studies:
            return self._find(studies, study_id)

    def _find(self, studies: StudyRepository, study_id: int) -> JobStudy:
        """Raises: KeyError."""
        job = studies.numbered(job_number_of_study(study_id))
        for study in self._studies_of(studies, job):
            if study.id == study_id:
                return study
        raise KeyError(f"no study {study_id}")

    def _studies_of(self, studies: StudyRepository, job: StudyJob | None) -> list[JobStudy]:
        if job is None:
            return []
        self._learn_spaces(studies, [job])
        return studies_of(job, self._sides(job))

    def _sides(self, job: StudyJob) -> tuple[Side, ...]:
        return tuple(self._spaces[job.id])

    def _learn_spaces(self, studies: StudyRepository, jobs: Sequence[StudyJob]) -> None:
        unknown = [job.id for job in jobs if job.id not in self._spaces]
        if unknown:
            for job_id, specification in studies.specifications(unknown).items():
                self._spaces[job_id] = spaces_of(specification)

    def _trials(self, studies: StudyRepository, study: JobStudy) -> list[FrozenTrial]:
        """The trials of a study, those made anew whose rows have changed; not to be changed."""
        rows = studies.trials(study.job.id, study.phase, optimizer=study.optimizer)
        with self._lock:
            before = self._remembered.get(study.id)
        if before is not None and before.rows == rows:
            return list(before.trials)
        dimensions = self._dimensions(study, rows)
        is_known = [
            before is not None
            and index < len(before.rows)
            and before.rows[index] == row
            and before.dimensions[row.side] == dimensions[row.side]
            for index, row in enumerate(rows)
        ]
        changed = [row.id for row, known in zip(rows, is_known, strict=True) if not known]
        curves = studies.curves(changed, study.job.objectives[0].metric)
        trials = [
            before.trials[index]
            if before is not None and is_known[index]
            else frozen.frozen_trial(study, index, row, dimensions[row.side], curves.get(row.id, {}))
            for index, row in enumerate(rows)
        ]
        with self._lock:
            self._remembered[study.id] = _Remembered(rows, dimensions, trials)
            self._remembered.move_to_end(study.id)
            while len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)
        return list(trials)

    def _dimensions(self, study: JobStudy, rows: Sequence[StudyTrial]) -> dict[Side, Distributions]:
        spaces = self._spaces[study.job.id]
        sides = {row.side for row in rows}
        return {
            side: dimensions_of(spaces[side], [row.parameters for row in rows if row.side == side]) for side in sides
        }

    # A study of a job is written by its run alone.

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> NoReturn:
        raise StudyIsReadOnly("no study can be made here")

    def delete_study(self, study_id: int) -> NoReturn:
        raise StudyIsReadOnly("no study can be deleted here")

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> NoReturn:
        raise StudyIsReadOnly(f"the attribute {key!r} of a study cannot be set")

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> NoReturn:
        raise StudyIsReadOnly(f"the attribute {key!r} of a study cannot be set")

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> NoReturn:
        raise StudyIsReadOnly("no trial can be added here")

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> NoReturn:
        raise StudyIsReadOnly(f"the parameter {param_name!r} of a trial cannot be set")

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> NoReturn:
        raise StudyIsReadOnly("the state of a trial cannot be set")

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> NoReturn:
        raise StudyIsReadOnly("a value of a trial cannot be set")

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> NoReturn:
        raise StudyIsReadOnly(f"the attribute {key!r} of a trial cannot be set")

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> NoReturn:
        raise StudyIsReadOnly(f"the attribute {key!r} of a trial cannot be set")
