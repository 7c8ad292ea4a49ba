"""Bodies about models that were never tuned: what is asked, and the configs that answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationInfo, field_validator

from service.api import examples
from service.api.request_body import RequestModel
from service.api.schemas.common import ReadModel
from service.described_model import StrictModel
from service.evidence.formats.snippet import trial_snippet
from service.evidence.formats.written import Format, Written, written_of
from service.transfer.candidates import SourceKind
from service.transfer.ranking import CONFIDENCE, Transferred
from service.transfer.situation import ConfigsWanted, FamilyMember, Situation
from service.transfer.taken_away import AskedModel, taken_away
from service.transfer.words import UntunedAnswer
from trainers.config import MAX_COUNT
from trainers.identity.values import MAX_KINDS, READING, ModelShape, ParameterKind, ParameterShape

MAX_CONFIGS = 20
"""Limit of one question, by judgement: more would be a search."""
MAX_DIMENSIONS = 16
"""Limit of a tensor's sides, by judgement: convolutions have five at most."""
NUM_DIMENSIONS: dict[ParameterKind, tuple[int, int]] = {
    "vector": (0, 1),
    "linear": (2, 2),
    "embedding": (2, 2),
    "convolution": (3, MAX_DIMENSIONS),
    "adapter": (2, MAX_DIMENSIONS),
}
"""The number of dimensions of parameters by kind, at least and at most."""
MAY_BE_TURNED = (
    "A matrix takes in as many numbers as no layer gives: earlier builds wrote those of GPT-2 turned. Write the file "
    "again with `shampoo-tuner fingerprint`."
)
Size = Annotated[int, Field(ge=1, le=MAX_COUNT)]


class ParameterGiven(StrictModel):
    """Parameters of one kind and size."""

    kind: ParameterKind
    """`linear`: a matrix; `convolution`: a kernel of more dimensions; `embedding`: a table; `vector`: of fewer;
    `adapter`: a factor of a low-rank adapter."""
    shape: list[Size] = Field(max_length=MAX_DIMENSIONS)
    """Outputs first, as torch has them."""
    count: Size = 1
    """The number of such parameters in the model."""

    @field_validator("shape")
    @classmethod
    def _has_dimensions_of_kind(cls, shape: list[int], info: ValidationInfo) -> list[int]:
        if (kind := info.data.get("kind")) is None:
            return shape
        least, most = NUM_DIMENSIONS[kind]
        if not least <= len(shape) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise ValueError(f"must have {wanted} sizes for the kind {kind!r}, got {shape}")
        return shape


class FingerprintGiven(StrictModel):
    """A model, as `shampoo-tuner fingerprint` prints it."""

    source: str = Field(default="", max_length=1000)
    """The source of this description of the model, for people."""
    workload: str | None = Field(default=None, min_length=1, max_length=200)
    """The name of the workload that builds it; null: it is none's, or of unknown data."""
    digest: str | None = Field(default=None, min_length=1, max_length=64)
    """The fingerprint that trials of it have; null: it is no workload's."""
    options: dict[str, JsonValue] | None = None
    """The options of the workload with which the model is built; null: they are not known."""
    parameters: list[ParameterGiven] = Field(min_length=1, max_length=MAX_KINDS)
    """All of its parameters that are trained."""
    num_frozen: int = Field(default=0, ge=0, le=2**53)
    """Elements of the parameters that are not trained, for people: they count nowhere."""
    remarks: list[Annotated[str, Field(max_length=1000)]] = Field(default=[], max_length=20)
    """Remarks on the parameters, for people: the answer repeats them."""
    reading: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """The version of how the parameters were read; null: not said, as by files of earlier builds."""

    @property
    def says(self) -> str:
        """The size of what is frozen, and the remarks, for a person."""
        frozen = f"{self.num_frozen:,} of its parameters are frozen and count nowhere." if self.num_frozen else ""
        return " ".join(filter(None, (frozen, *self.remarks, MAY_BE_TURNED if self._may_be_turned else "")))

    @property
    def _may_be_turned(self) -> bool:
        """True if it may be of an earlier build and has what that made of GPT-2: a matrix that takes in as many numbers
        as nothing gives, beside a table of embeddings."""
        if self.reading is not None and self.reading >= READING:
            return False
        widths = {one.shape[1] for one in self.parameters if one.kind == "embedding"}
        matrices = [one for one in self.parameters if one.kind == "linear"]
        given = widths | {one.shape[0] for one in matrices}
        return bool(widths) and any(one.shape[1] not in given for one in matrices)


class TransferBudget(StrictModel):
    """The budget for tuning the model: the number of configs to try."""

    num_trials: Annotated[int, Field(ge=1, le=MAX_CONFIGS)] = 5
    """Configs that are wanted."""


class UntunedQuestion(RequestModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.UNTUNED_QUESTION]})

    fingerprint: FingerprintGiven
    """The model."""
    batch_size: Size
    """Examples in a step, of all ranks together."""
    num_steps: Size
    """The number of steps of the whole training."""
    budget: TransferBudget = Field(default_factory=TransferBudget)
    """Configs that are wanted."""
    preconditioner: FamilyMember | None = None
    """The member of Shampoo's family that configs are wanted of. Null: any."""
    proxy_job: str | None = Field(default=None, min_length=1, max_length=64)
    """The job that tuned a smaller or shorter version of the model: its answer alone is moved, up to three configs.
    Null: those of the nearest tuned models."""
    formats: list[Annotated[Format, Field(strict=False)]] = Field(default=[], max_length=len(Format))
    """Formats in which each config is written, beside Python. Empty: none."""

    @property
    def wanted(self) -> ConfigsWanted:
        """The model, with the length of its training, that configs are wanted for."""
        given = self.fingerprint
        parameters = (ParameterShape(one.kind, tuple(one.shape), one.count) for one in given.parameters)
        target = Situation.of(
            ModelShape(tuple(sorted(parameters))),
            batch_size=self.batch_size,
            num_steps=self.num_steps,
            workload=given.workload,
            digest=given.digest,
        )
        return ConfigsWanted(
            target, num_configs=self.budget.num_trials, member=self.preconditioner, proxy_job=self.proxy_job
        )


class DistanceRead(ReadModel):
    """The distance of the tuned model from this one, in octaves: factors of two."""

    total: float
    """The root of the sum of the squares of the others, with an octave of depth counted thrice, and one of batch size
    or steps half."""
    width: float
    """The distance in the width of the layers."""
    depth: float
    """The distance in depth, counted in matrices."""
    batch_size: float
    """The distance in the batch size of a step, over all ranks."""
    num_steps: float
    """The distance in the number of steps of the whole training."""
    kinds: float
    """The distance in the kinds of parameters: 4, if the models have no kind in common."""
    workload: float
    """Other data: 2, if they are not of the same workload."""


class ChangeRead(ReadModel):
    """A value that a scaling rule moved, that several models gave together, or that was varied on purpose."""

    name: str
    """The name of the value, e.g. `lr` or `betas[1]`."""
    before: float
    """The tuned value; if several models answer together, that of the nearest one."""
    after: float
    """The value in this config."""
    reason: str
    """The rule with its ratio, and another factor if there is one; or how several models gave it together."""
    source: str
    """The paper that the rule is from, or follows from; why the value was varied; or the benchmark that measures it."""


class IntervalRead(ReadModel):
    """The range that holds the best value for this model, with `confidence`."""

    name: str
    """The name of the parameter."""
    low: float
    """The lower end of the range."""
    high: float
    """The upper end of the range."""


class ShareRead(ReadModel):
    """The weight of a tuned model's trials in the answer of several models together."""

    name: str
    """The name of the model, for people."""
    share: float
    """The share of all models' weight; they sum to 1."""
    job_id: str | None
    """The job that tuned it; null: it is of the table that comes with the service."""


class OriginRead(ReadModel):
    """The origin of a config: who tuned it, and for which model."""

    kind: SourceKind
    """`store`: a job of this service, or several tuned models together of which some are of jobs; `shipped`: the table
    that comes with it; `published`: a paper's, for others; `adapters`: measured on low-rank adapters of a small
    GPT-2."""
    name: str
    """The name of the origin, for people."""
    recommendation_id: str | None
    """The id of the recommendation, if a job of this service made it."""
    job_id: str | None
    """The job that tuned it."""
    status: str | None
    """The status of a job's recommendation: whether new seeds confirmed it there."""
    standing: str | None = None
    """The status with what was confirmed, for people: `confirmed up to the noise`."""
    metric: str | None
    """The objective that decided."""
    value: float | None
    """The value of the objective, for the model that it was tuned for: not to be expected of another one."""
    num_trials: int | None
    """The number of trials of its search; for several models together, of all their searches."""
    shares: list[ShareRead]
    """The weights of the models that answered together, the largest first; empty: one model answered."""


class UntunedConfigRead(ReadModel):
    """A config to try."""

    optimizer: str
    """`shampoo`, or what the nearest model was tuned with."""
    config: dict[str, Any]
    """Exactly the keyword arguments of the optimizer."""
    schedule: dict[str, Any]
    """Fields of the learning-rate schedule."""
    training: dict[str, Any]
    """`num_steps`, `batch_size` and settings beside them."""
    lr_factor: float
    """1: the learning rate of the rules; otherwise a factor on it, tried on purpose."""
    distance: DistanceRead | None
    """Null: it was published for several models at once, and is not moved."""
    intervals: list[IntervalRead]
    """The intervals of the learning rate and the weight decay; empty: unknown."""
    confidence: float
    """The confidence of the intervals."""
    changes: list[ChangeRead]
    """Values that differ from those that were tuned."""
    origin: OriginRead
    """The origin of the config: who tuned it, and for which model."""
    remarks: list[str]
    """Remarks on the config that its arguments do not express."""
    python: str
    """The config as Python to paste."""
    formats: list[Written] = Field(default=[])
    """The config in each of the formats that were asked for, in that order."""

    @classmethod
    def of(cls, found: Transferred, question: UntunedQuestion) -> UntunedConfigRead:
        training = {
            "gradient_clip_norm": None,
            **found.origin.training,
            "num_steps": question.num_steps,
            "batch_size": question.batch_size,
        }
        schedule = {"decay": "cosine", "warmup_fraction": 0.05, **found.config.schedule}
        given = question.fingerprint
        model = AskedModel(given.source, given.workload, given.options)
        taken = taken_away(found, model, schedule=schedule, training=training)
        return cls(
            optimizer=found.config.optimizer,
            config=dict(found.config.arguments),
            schedule=schedule,
            training=training,
            lr_factor=found.lr_factor,
            distance=None if found.distance is None else DistanceRead.model_validate(found.distance),
            intervals=[IntervalRead.model_validate(one) for one in found.intervals],
            confidence=CONFIDENCE,
            changes=[ChangeRead.model_validate(one) for one in found.changes],
            origin=OriginRead.model_validate(found.origin.source),
            remarks=found.remarks,
            python=trial_snippet(taken.config, header=taken.header, command=taken.command),
            formats=[written_of(taken, form) for form in question.formats],
        )


class UntunedAnswerRead(ReadModel):
    model_config = ConfigDict(json_schema_extra={"examples": [examples.UNTUNED_ANSWER]})

    basis: Literal["store", "built_in"]
    """`store`: tuned models of this service are among the sources; `built_in`: there are none, or all are too far from
    the model or of other members of the family than the one that was asked for."""
    says: str
    """The grounds of the answer, for people."""
    items: list[UntunedConfigRead]
    """The config to try first at the front."""

    @classmethod
    def of(cls, answer: UntunedAnswer, question: UntunedQuestion) -> UntunedAnswerRead:
        return cls(
            basis="store" if answer.rests_on_store else "built_in",
            says=" ".join(filter(None, (answer.says, question.fingerprint.says))),
            items=[UntunedConfigRead.of(found, question) for found in answer.configs],
        )
