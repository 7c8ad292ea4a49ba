"""Bodies about recommendations: what is recommended, for what, and how far to trust it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field

from service.api import examples
from service.api.schemas.common import ReadModel
from service.api.schemas.in_html import shown
from service.domain import WeightsOf
from service.evidence.formats.snippet import python_snippet
from service.evidence.formats.torchrun import torchrun_line
from service.evidence.in_words.wording import optimizer_title
from service.evidence.in_words.words import evidence_lines
from service.evidence.recommended import RecommendedConfig, weights_links
from service.inert import inert

if TYPE_CHECKING:
    from service.store import models


class RecommendationKey(ReadModel):
    """The key of a recommendation: all that it holds for. Null: it was not known when the recommendation was made."""

    fingerprint: str | None
    """The fingerprint of the model: a digest of its parameters' shapes and kinds, its other modules, and the workload
    with the options of the model that the search did not vary."""
    data_digest: str | None
    """The digest of the data: names, sizes and beginnings of the files, or some of the examples."""
    batch_size: int | None
    """Examples in a step, of all ranks together."""
    num_steps: int | None
    """The number of steps of a full trial."""
    precision: str | None
    """The precision of the training, e.g. `float32`."""
    objective: str
    """The metric that decided."""


class EnvironmentRead(ReadModel):
    """The machine and the versions with which the recommended config was found."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str | None
    """The GPU as CUDA calls it."""
    world_size: int
    """Ranks of the trial."""
    versions: dict[str, str]
    """The versions of Python, torch, shampoo-tuner, the package of the workload, and the libraries that were in use."""


class RecommendationRead(RecommendedConfig):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.RECOMMENDATION]})

    id: str
    """The id of the recommendation."""
    job_id: str
    """The id of the job that found it."""
    model: str | None = None
    """The user's own name of the model."""
    superseded: bool
    """True if another answer for the same key stands in its place: a newer one that is better confirmed, or of those
    that are as well confirmed the one with the best value."""
    key: RecommendationKey
    """The model, data and training that it holds for."""
    environment: EnvironmentRead | None = None
    """Null: it was found before this was kept."""
    python: str
    """The config as Python to paste."""
    torchrun: str | None = None
    """A line for a shell that trains it again, as its trial was trained; null: it was made before its ranks were kept,
    or its trial began from another one's checkpoint."""
    weights: dict[WeightsOf, str] = Field(default_factory=dict)
    """Paths at which the trained weights of the config and of the baseline's best can be downloaded, where they were
    confirmed and the job keeps them."""
    created_at: datetime
    """The time at which it was made."""

    @classmethod
    def of(cls, stored: models.RecommendationRow, *, is_superseded: bool) -> RecommendationRead:
        recommended = stored.recommended
        return cls(
            id=stored.id,
            job_id=stored.job_id,
            model=stored.model,
            superseded=is_superseded,
            key=RecommendationKey.model_validate(stored),
            environment=None if stored.environment is None else EnvironmentRead.model_validate(stored.environment),
            python=python_snippet(recommended),
            torchrun=torchrun_line(recommended),
            weights=weights_links(stored.job_id, recommended),
            created_at=stored.created_at,
            **dict(recommended),
        )

    def __str__(self) -> str:
        """The evidence in words; `python` has the code to paste."""
        return inert("\n".join((self._title(), *evidence_lines(self.evidence))))

    def _repr_html_(self) -> str:
        """HTML for notebooks: the evidence in words, and the Python to paste."""
        return shown(self._title(), evidence_lines(self.evidence), code=self.python)

    def _title(self) -> str:
        return f"{optimizer_title(self.optimizer)} for {self.model or self.workload}"


class KnownValuesRead(ReadModel):
    """The values of a filter that answers have."""

    field: str
    """A parameter of the query, such as `device`."""
    values: list[str | int]
    """The values, up to 20 of them."""


class RecommendationList(ReadModel):
    items: list[RecommendationRead]
    """The best first."""
    elsewhere: list[KnownValuesRead] = Field(default_factory=list)
    """If nothing was found: of each filter that was asked for beside the names, the values that answers with these
    names have. No values: there is no answer yet. Where no answer has all of several names, such as `model` and
    `workload`: of each name, too, the values that answers with the other ones have."""
