"""One call that tunes a model, for a notebook or a script: it submits a job, waits, and shows what was found."""

from __future__ import annotations

import inspect
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from service.api.schemas.jobs import JobRead
from service.api.schemas.recommendations import RecommendationRead
from service.client.client import Client
from service.client.waiting import print_submitted
from service.errors import InvalidInput
from trainers.installation.extras import optional_library

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(slots=True, repr=False)
class Tuned:
    """A job that `tune` has submitted, as it was last seen, and its results."""

    job: JobRead
    """The job."""
    recommendation: RecommendationRead | None
    """Its recommendation; None: it has not ended, or without a completed trial."""
    client: Client
    """The client that it was submitted with, open."""

    def wait(self, *, progress: bool = True) -> Tuned:
        """Waits until the job has ended, and gives itself, with the recommendation.

        Raises:
            ServiceUnreachable: the service does not answer; the job may go on.
        """
        self.job = self.client.wait(self.job.id, progress=progress)
        if self.job.progress.best is not None:
            self.recommendation = self.client.recommendation(self.job.id)
        return self

    def trials(self) -> DataFrame:
        """The job's trials as they are now, a row each by number: phase, state, value, steps, seconds, and a column for
        each hyperparameter.

        Raises:
            ValueError: pandas is not installed (the message has the command).
        """
        pandas = optional_library("pandas", extra="notebook", purpose="a table of trials")
        rows = [
            {
                "number": trial.number,
                "phase": str(trial.phase),
                "state": str(trial.state),
                "value": trial.value,
                "step": trial.step,
                "seconds": trial.seconds,
                **trial.parameters,
            }
            for trial in self.client.trials(self.job.id)
        ]
        fixed = ["number", "phase", "state", "value", "step", "seconds"]
        table: DataFrame = (pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=fixed)).set_index("number")
        return table

    def curve(self, number: int) -> DataFrame:
        """The curve of a trial, a row a measurement by step: seconds and every metric.

        Raises:
            ApiError: 404: there is no such trial.
            ValueError: pandas is not installed.
        """
        pandas = optional_library("pandas", extra="notebook", purpose="a table of measurements")
        rows = [
            {"step": m.step, "seconds": m.seconds, **m.metrics} for m in self.client.measurements(self.job.id, number)
        ]
        table: DataFrame = (pandas.DataFrame(rows) if rows else pandas.DataFrame(columns=["step"])).set_index("step")
        return table

    def __str__(self) -> str:
        """The state of the job and the evidence in words, for a script that prints it."""
        return f"{self.job}" if self.recommendation is None else f"{self.job}\n{self.recommendation}"

    __repr__ = __str__  # a prompt without HTML shows it: all fields of job and recommendation fill pages

    def _repr_html_(self) -> str:
        return self.job._repr_html_() + ("" if self.recommendation is None else self.recommendation._repr_html_())


def tune(
    workload: str | type,
    *,
    budget: int | Mapping[str, Any],
    wait: bool = True,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
    send_code: bool | str | Path = True,
    url: str | None = None,
    token: str | None = None,
    **specification: Any,
) -> Tuned:
    """Tunes a model against its baseline, and gives the job with its recommendation. The job's page, and what the
    service finds to be wrong with the job, are told on standard error.

        from service.client import tune
        from my_model import MyWorkload

        found = tune(MyWorkload, budget=16)  # it displays as the evidence in words
        table = found.trials()

    Args:
        workload: one that the service knows, by name, or a class, which its module and, if it is in a package, all of
            that goes along with.
        budget: trials of all phases but the confirmation, or the fields of a job's budget.
        wait: until the job has ended, with a line on standard error whenever a trial has.
        options: the options of the workload.
        name: what to call the job.
        send_code: False: the service can import the class itself; a directory: that goes along instead, with the files
            beside the class's that it imports.
        url: the address of the service; None: from the environment, as for `Client`.
        token: the token for it; None: from the environment.
        specification: further fields of a job, such as `search_space` and `confirmation`.

    Raises:
        InvalidInput: the class is of no module that can be sent, as one of a notebook's cells.
        ApiError: the service refused the job; the problem names the field.
    """
    named = workload if isinstance(workload, str) else f"{workload.__module__}:{workload.__qualname__}"
    content: dict[str, Any] = {**specification, "workload": {"name": named, "options": dict(options or {})}}
    content["budget"] = dict(budget) if isinstance(budget, Mapping) else {"num_trials": budget}
    client = Client(url, token=token)
    try:
        if isinstance(send_code, str | Path):
            content["code"] = {**content.get("code", {}), "sha256": client.send_code(Path(send_code)).sha256}
        elif send_code and not isinstance(workload, str) and "code" not in content:
            sha256 = _sent(client, workload)
            content |= {} if sha256 is None else {"code": {"sha256": sha256}}
        job = client.submit(content, name=name)
        print_submitted(job, client.base_url)
        found = Tuned(job, None, client)
        return found.wait() if wait else found
    except BaseException:
        client.close()
        raise


def _sent(client: Client, workload: type) -> str | None:
    """The hash of the class's module or package, which the service then has; None: it is installed, not lying about."""
    top = workload.__module__.partition(".")[0]
    if top == "__main__":
        raise InvalidInput(
            "workload",
            f"{workload.__qualname__} is of a notebook's cell or of a script: put it into a file of its own (begin a "
            "cell with %%writefile my_workload.py), and import it from there",
        )
    file = Path(inspect.getfile(workload))
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib")]
    if top == "trainers" or any(file.resolve().is_relative_to(place) for place in installed):
        return None
    with tempfile.TemporaryDirectory() as directory:
        for place in getattr(sys.modules[top], "__path__", ()):  # one, but for a package without __init__.py
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(place, Path(directory) / top, ignore=unwanted, dirs_exist_ok=True)
        if not hasattr(sys.modules[top], "__path__"):
            shutil.copyfile(file, Path(directory) / file.name)
        return client.send_code(Path(directory)).sha256
