"""The most that a job would cost, told before it is submitted: plain values, answered as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from service.described_model import DescribedModel
from service.domain import Phase, Side
from service.specification.job import EarlierWinner
from service.transfer.promise import PresetsCompared

_DESCRIBED = ConfigDict(use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, config=_DESCRIBED)
class EarlierMeasurements:
    """The measurements of an earlier job's completed trials: same workload and options, and the same kind of steps."""

    job_id: str
    """The id of the job that measured."""
    num_trials: int
    """The number of its trials that were measured."""
    workers_per_trial: int
    """The ranks of each trial. A job with as many is looked for first."""
    batch_size: int
    """Examples of these steps: those of the job, or where it searches them the smallest, or the nearest to that."""
    step_seconds: float
    """Median over trials, at their last measurement."""
    trial_overhead_seconds: float | None
    """Median over trials that were not interrupted: evaluation, checkpoints and what else a trial takes beside its
    steps; null: there are none."""
    optimizer_state_bytes: float | None
    """The bytes of the optimizer's state on the rank that needed most, the largest over trials; null: unknown, or
    measured with another number of ranks."""
    peak_memory_bytes: float | None
    """The peak memory of the rank that needed most, the largest over trials; null: unknown, or measured with another
    number of ranks."""


@dataclass(frozen=True, slots=True, config=_DESCRIBED)
class StartUp:
    """The time from the start of a job's run to its first trial's first step: Ray, processes, imports, the data. It is
    paid once per job."""

    seconds: float
    """The seconds from the queue to the first step."""
    job_id: str | None
    """The earlier job in which it was measured, one with the same workload if there is any; null: none has been run
    here, and `seconds` is an assumption."""


@dataclass(frozen=True, slots=True, config=_DESCRIBED)
class SpaceMemory:
    """The memory of each rank that the trials of a search space need, at least: weights, gradients, optimizer and
    averages. Activations are told apart (`activation_bytes`), and the process itself comes on top."""

    default_bytes: int
    """The bytes with every parameter at its default."""
    largest_bytes: int
    """The largest number of bytes over the points looked at."""
    share_infeasible: float | None
    """The share of the points that need more than `limit_bytes`: such trials fail as `infeasible` without being
    launched. Null: the limit is unknown, so all are launched."""
    num_points: int
    """Configs of the space that were looked at."""
    activation_bytes: int | None = None
    """The bytes of activations with every parameter at its default: what the forward pass of one rank's part of a batch
    keeps for the backward pass, the batch included. Measured on this machine's CPU on a few examples, and scaled. Null:
    see `MemoryEstimate.activations_problem`."""

    @property
    def fits_nowhere(self) -> bool:
        """True if not one of the points looked at fits."""
        return self.share_infeasible == 1.0


@dataclass(frozen=True, slots=True, config=_DESCRIBED)
class MemoryEstimate:
    """The memory of each rank that the trials of a job need, and its limit. Predicted from the shapes of the model."""

    limit_bytes: int | None
    """`resources.memory_per_worker`, or for GPU ranks the memory of the GPU where the API runs, if trials run there,
    too; or see `is_machine_limit`. Null: unknown, or there is none. The run asks the machines of a cluster."""
    spaces: Mapping[Side, SpaceMemory] = Field(default_factory=dict)
    """The memory by side: `search`, and the name of each baseline's optimizer."""
    problem: str | None = None
    """The reason why nothing could be predicted."""
    construction_fails: bool = False
    """True: the workload's constructor or its `build_model` raised an error where trials find their data as the API
    does, so that they are likely to fail with it: `problem` has it."""
    activations_problem: str | None = None
    """The reason why activations could not be measured, of the first space whose could not."""
    step_fails: bool = False
    """True: the workload's code raised an error in a step with a few examples, so that trials are likely to fail with
    it: `activations_problem` has it."""
    kept_weights_bytes: int | None = None
    """Storage that the winners' trained weights take from the job's end until it is deleted: a file of the recommended
    config and one of the baselines' best. 0: the job keeps none; null: not known."""
    machine_bytes: int | None = None
    """The memory of the machine where the API runs, if ranks without a GPU run there, too; null: they do not."""
    parallel_trials: int | None = None
    """Trials at once on that machine: as many as its CPUs hold, or `resources.parallel_trials` if they are fewer, or
    where the job does not say, those of which its memory holds weights, gradients and optimizer; null: trials do not
    train there, or `resources.memory_per_worker` says how many fit."""
    is_limited_by_memory: bool = False
    """True: its CPUs would hold more at once than its memory."""
    together_bytes: int | None = None
    """The memory that so many trials need together, the largest with the defaults, with the activations if they are
    known; null: see `parallel_trials`."""
    is_machine_limit: bool = False
    """True: `limit_bytes` is each rank's part of twice `machine_bytes`, as the job names no limit of its own."""
    shortage: str | None = None
    """The reason why no trial can start on the machine where the API runs, if trials train there, in words: it has no
    GPU, or too few CPUs. Null: none is known."""


class Estimate(DescribedModel):
    """The most that a job would cost."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    num_trials: Mapping[Phase, int]
    """Trials by phase."""
    num_baseline_trials: Mapping[Side, int] = Field(default_factory=dict)
    """The trials of each baseline, by its optimizer's name."""
    num_left_over: int = 0
    """Trials of `budget.num_trials` that no side gets, because sides with equal shares get equally many."""
    num_steps: int
    """Steps of a full trial; where batch sizes are searched, of the longest."""
    equal_seconds: bool = False
    """True: every trial takes the time of that many steps of the quickest config, and slower ones have fewer."""
    num_examples: int | None = None
    """Training examples of every full trial, where batch sizes are searched; null: they are not."""
    smallest_batch: int | None = None
    """The batch of the trial with `num_steps`, where batch sizes are searched."""
    max_steps: int
    """Steps of all trials, if none were pruned."""
    confirmation_share: float = 0.0
    """Share of the trials, and of `max_steps`, that go into the confirmation. Its trials are trained to their ends, so
    where others are pruned its share of the steps is larger."""
    measured: EarlierMeasurements | None
    """Null: no earlier job like this one has completed a trial."""
    step_seconds: float | None = None
    """Seconds of a step, where batch sizes are searched of the smallest: as measured, or where another number of ranks
    was measured, scaled: the optimizer's share of a step stays, and the rest is divided among the ranks. Where another
    batch was measured, at most so many: those of a larger one, or in proportion those of a smaller one. Null:
    unknown."""
    side_step_seconds: Mapping[Side, float] = Field(default_factory=dict)
    """Seconds of a step of each side at most, which `max_seconds` and `max_device_hours` go by: of the slowest
    completed trial with its optimizer in the newest job that had one, scaled likewise. Empty: unknown."""
    unmeasured_sides: Sequence[Side] = Field(default_factory=list)
    """The sides whose optimizer no earlier job like this one has trained: their steps are counted as those of the
    slowest other one."""
    start_up: StartUp | None = None
    """The time before the first step."""
    max_seconds: float | None = None
    """Seconds from the start of the run to the end: the start-up, `max_steps`, each side's at its `side_step_seconds`,
    and the trials' overhead, with
    `resources.parallel_trials` at once (null: one); or the budget's `wall_clock_seconds` if they are less; null:
    unknown."""
    max_device_hours: float | None
    """The device-hours of `max_steps` at `side_step_seconds`, or what the budget's `device_hours` and `cost` allow if
    they are less; null: unknown."""
    max_cost: float | None = None
    """The cost of those device-hours; null: they are unknown, or have no price."""
    currency: str | None = None
    """The currency of the cost; null: there is no price."""
    winners: Mapping[Side, Sequence[EarlierWinner]] = Field(default_factory=dict)
    """The configs that each side whose `pinned` has `winners` would begin with; empty: no earlier job has one."""
    memory: MemoryEstimate | None = None
    """Null: it was not asked for."""
    presets: PresetsCompared | None = None
    """The presets that tuned models near the job's compare, where it searches a member of Shampoo's family: of the
    project's jobs, and those that come with shampoo-tuner; null: none is near, or the job's model is not known."""

    @property
    def hopeless_sides(self) -> list[Side]:
        """The sides of which no trial is going to fit into memory, as far as was looked."""
        spaces = {} if self.memory is None else self.memory.spaces
        return [side for side, space in spaces.items() if space.fits_nowhere]

    @property
    def is_futile(self) -> bool:
        """True if trials of the job will fail, as far as was looked: none of a side fits, or the workload cannot
        be built, or a step fails."""
        memory = self.memory
        return bool(self.hopeless_sides) or (memory is not None and (memory.construction_fails or memory.step_fails))
