"""How the trials of a job train: the part of its specification that is no hyperparameter."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, JsonValue

from search_spaces import Assignment, SearchSpace, SpaceError
from search_spaces.optimizers import AVERAGING
from service.errors import InvalidInput
from service.specification.strict_model import MAX_COUNT, MAX_SEED, StrictModel
from trainers.config import ParallelismMode, Precision


class Parallelism(StrictModel):
    mode: ParallelismMode = "ddp"
    """How ranks share the model: `ddp` (each has all of it), `fsdp2`, `hsdp` or `simple_fsdp` (sharded)."""
    shard_size: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """With `hsdp`: ranks that share one copy of the model."""


class Compression(StrictModel):
    """PowerSGD compression of the gradients that ranks exchange, with `ddp`."""

    rank: int = Field(default=4, ge=1, le=MAX_COUNT)
    start_step: int = Field(default=10, ge=2, le=MAX_COUNT)
    """Steps with exact gradients before it starts."""
    error_feedback: bool = True


class Averaging(StrictModel):
    """Weight averaging; the averaged weights are the ones that are measured."""

    method: Literal["ema", "lawa", "schedule_free", "primal"] = Field(examples=["ema"])
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Of `shampoo.WeightAveraging`."""

    def check_arguments(self) -> None:
        """Checks the arguments as a search space's values are; which of them a method takes, its trials tell.

        Raises:
            InvalidInput: names the first that is none or out of range.
        """
        for name, value in self.arguments.items():
            field = f"training.averaging.arguments.{name}"
            if name not in AVERAGING or name == "method":
                known = ", ".join(sorted(AVERAGING.keys() - {"method"}))
                raise InvalidInput(field, f"unknown argument of weight averaging (known: {known}), got {value!r}")
            try:
                SearchSpace("adamw", fixed={f"averaging.{name}": value})  # type: ignore[dict-item]  # checked there
            except SpaceError as error:
                raise InvalidInput(field, error.message) from error


class Training(StrictModel):
    num_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Optimizer steps of a full trial; null: the workload's default."""
    evaluate_every: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Steps between measurements; null: the workload's default, unless one of the next two is given."""
    evaluate_every_epochs: float | None = Field(default=None, gt=0)
    """Epochs between measurements."""
    evaluate_every_seconds: float | None = Field(default=None, gt=0)
    """Seconds of training between measurements."""
    batch_size: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Examples per step over all ranks; null: the workload's default."""
    accumulation_steps: int = Field(default=1, ge=1, le=MAX_COUNT)
    """Forward and backward passes per optimizer step, each on an equal part of the batch."""
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    gradient_clip_norm: float | None = Field(default=None, gt=0)
    max_loss: float | None = Field(default=None, gt=0)
    """A training loss above this ends a trial as diverged; null: 10,000."""
    precision: Precision = "float32"
    """Of the forward and backward passes; parameters and optimizer state stay in float32."""
    activation_checkpointing: bool = False
    """Whether activations are computed again in the backward pass instead of kept."""
    compile: bool = False
    """Whether the model is compiled with `torch.compile`."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    compression: Compression | None = None
    averaging: Averaging | None = None
    checkpoint_every: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Steps between checkpoints; null: one after each measurement."""
    keep_checkpoints: int = Field(default=2, ge=1, le=MAX_COUNT)
    """How many checkpoints of a trial are kept."""

    report_timeout_seconds: float | None = Field(default=7200.0, gt=0)
    """A trial that gives no measurement for so long has failed, preparing its data and compiling included; null: it
    may take for ever."""

    def trial_fields(self, assignment: Assignment) -> dict[str, Any]:
        """The fields of a trial's config that stand here, or that a search space assigns in their place, as JSON."""
        elsewhere = {"num_steps", "batch_size", "evaluate_every", "report_timeout_seconds"}
        fields = self.model_dump(exclude=elsewhere, exclude_none=True)
        fields |= assignment.training
        if assignment.compression:
            fields["compression"] = fields.get("compression", {}) | assignment.compression
        if assignment.averaging:
            averaging = fields.get("averaging", {"arguments": {}})
            arguments = {name: value for name, value in assignment.averaging.items() if name != "method"}
            fields["averaging"] = {
                **averaging,
                **{name: value for name, value in assignment.averaging.items() if name == "method"},
                "arguments": averaging["arguments"] | arguments,
            }
        return fields
