"""The plan of a job as a value: everything that its run follows."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from search_spaces import Scalar, SearchSpace
from service.domain import Direction, Objective, Phase, PrunerName, Side
from service.specification.imported import KnownPoint
from service.specification.job import JobSpecification
from service.specification.length import parts_of_batch, told_parts
from service.specification.objectives import summaries_of, target_of
from service.specification.phases import ConfirmationSizes, confirmation_of
from service.specification.search.method import SamplerOfJob
from service.specification.search.population import PopulationPlan
from service.specification.trial_lengths.trial_length import JobLength
from trainers.config import MAX_SEED, InvalidConfig, OptimizerConfig, ScheduleConfig, TrialConfig
from trainers.workload.description import WorkloadDescription


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A checked specification with every default filled in."""

    specification: JobSpecification
    workload: WorkloadDescription
    objectives: tuple[Objective, ...]
    """The one that counts first."""
    length: JobLength
    """The steps, measurements and batch sizes of its trials."""
    sampler: SamplerOfJob
    pruner: Literal["auto"] | PrunerName
    """`auto`: the sampler of that name pauses trials itself."""
    first_judged_at: int
    """The length after which a pruner first judges a trial, in the unit of `length.whole`."""
    population: PopulationPlan | None
    """The population of the pruner `pbt`; None with any other."""
    spaces: dict[Side, SearchSpace]
    """The search's first, then the baselines' in their order."""
    allotments: dict[Phase, int]
    """Trials of each phase; of the confirmation about so many: fewer if fewer configs completed, more if some fail."""
    side_allotments: dict[Side, int]
    """Trials of each side."""
    pinned: dict[Side, tuple[dict[str, Scalar], ...]]
    """Assignments that a side tries first, after the defaults."""
    imported: tuple[KnownPoint, ...]
    """Points that the search's sampler is told before the first trial."""

    @property
    def num_steps(self) -> int:
        """Steps of a full trial; where trials differ in them, of the longest."""
        return self.length.num_steps

    @property
    def metric(self) -> str:
        """The metric of the first objective."""
        return self.objectives[0].metric

    @property
    def direction(self) -> Direction:
        """The direction of the first objective."""
        return self.objectives[0].direction

    @property
    def num_trials(self) -> int:
        """Trials of all phases."""
        return sum(self.allotments.values())

    @property
    def confirmation(self) -> ConfirmationSizes | None:
        """None: there is none."""
        return confirmation_of(self.specification)

    @property
    def confirmation_seeds(self) -> list[int]:
        """The new seeds, those that choose first; empty without a confirmation."""
        return confirmation_seeds(self.specification)

    @property
    def baselines(self) -> list[Side]:
        """The optimizers of the baselines, in their order."""
        return [side for side in self.spaces if side != Phase.SEARCH]

    def trial_config(self, side: Side, parameters: dict[str, Any], *, seed: int | None = None) -> TrialConfig:
        """The config of a trial of this side with these sampled values ({parameter name: value}).

        Args:
            seed: None: the job's.
        """
        space, requested, length = self.spaces[side], self.specification, self.length
        assignment = space.assign(parameters)
        training = requested.training.with_assigned(assignment)
        batch_size = training.batch_size or length.batch_size
        if batch_size % parts_of_batch(requested):
            raise InvalidConfig("batch_size", f"{batch_size} is not divisible by {told_parts(requested)}")
        of_trial = length.of_trial(side, parameters, batch_size=batch_size)
        measurements = length.measurements_of(of_trial, batch_size=batch_size)
        training = dataclasses.replace(
            training,
            evaluate_every=measurements.evaluate_every,
            evaluate_every_examples=measurements.evaluate_every_examples,
            evaluate_every_tokens=None,
        )
        if self.population is not None:
            training = dataclasses.replace(training, checkpoint_every=self.population.interval)
        if seed is not None:
            training = dataclasses.replace(training, seed=seed)
        return TrialConfig.of(
            training,
            workload=self.workload.name,
            workload_options={**requested.workload.options, **assignment.workload_options},
            optimizer=OptimizerConfig(space.optimizer, dict(assignment.optimizer_arguments)),
            schedule=ScheduleConfig(**assignment.schedule),
            num_steps=length.num_steps if of_trial is None else of_trial.num_steps,
            batch_size=batch_size,
            target=target_of(requested, self.workload),
            summaries=summaries_of(requested, self.workload),
        )


def confirmation_seeds(specification: JobSpecification) -> list[int]:
    """The new seeds of a job's confirmation: those after the one that all other trials have."""
    sizes, seed = confirmation_of(specification), specification.training.seed
    return [(seed + 1 + index) % (MAX_SEED + 1) for index in range(sizes.num_seeds if sizes else 0)]
