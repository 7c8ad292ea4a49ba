"""The phases of a job: their search spaces, what each tries first, and how many trials each gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from search_spaces import Scalar, SearchSpace, SpaceError, algoperf_points, preset, presets
from search_spaces.nearest import did_you_mean
from search_spaces.parameters import sectioned
from service.domain import Phase
from service.errors import InvalidInput
from service.evidence.comparison.finalists import num_choosing
from service.evidence.types import MIN_TRIED
from service.specification.job import ConfirmationChoice, EarlierWinner, JobSpecification, Pinned
from trainers.workload.description import WorkloadDescription

DEFAULT_TOP_K = 2
FIELDS = {Phase.SEARCH: "search_space", Phase.BASELINE: "baseline.search_space"}
"""The field of a specification that holds each phase's space."""


@dataclass(frozen=True, slots=True)
class ConfirmationSizes:
    """The size of a confirmation."""

    top_k: int
    """Configs of each side."""
    num_choosing: int
    """New seeds that each of them is trained with."""
    num_comparing: int
    """New seeds that the chosen one of each side is trained with."""

    @property
    def num_seeds(self) -> int:
        """All new seeds."""
        return self.num_choosing + self.num_comparing


def spaces_of(specification: JobSpecification) -> dict[Phase, SearchSpace]:
    """The search spaces of search and baseline.

    Raises:
        InvalidInput: one is none; names what is wrong in it.
    """
    spaces = {Phase.SEARCH: _space(FIELDS[Phase.SEARCH], specification.search_space)}
    if specification.baseline is not None:
        spaces[Phase.BASELINE] = _space(FIELDS[Phase.BASELINE], specification.baseline.search_space)
    return spaces


def pinned_of(
    specification: JobSpecification, spaces: Mapping[Phase, SearchSpace]
) -> dict[Phase, tuple[dict[str, Scalar], ...]]:
    """The assignments that search and baseline try first, after the defaults.

    Raises:
        InvalidInput: the space has no such values; names the parameter.
    """
    pinned = {Phase.SEARCH: _pinned("pinned", specification.pinned, spaces[Phase.SEARCH])}
    if specification.baseline is not None:
        pinned[Phase.BASELINE] = _pinned("baseline.pinned", specification.baseline.pinned, spaces[Phase.BASELINE])
    return pinned


def allot(specification: JobSpecification) -> dict[Phase, int]:
    """The number of trials of each phase; the confirmation has fewer if fewer configs complete than it is to confirm.

    More trials for the job are never fewer for a phase.

    Raises:
        InvalidInput: there are too few for the phases.
    """
    budget, baseline = specification.budget, specification.baseline
    num_trials = budget.num_trials
    allotments = {Phase.SEARCH: num_trials}
    if baseline is None and budget.extra_baseline_trials:
        raise InvalidInput("budget.extra_baseline_trials", "has no effect without a baseline")
    if baseline is not None:
        if num_trials < 2:
            raise InvalidInput("budget.num_trials", f"a job with a baseline needs at least 2 trials, got {num_trials}")
        # Of half a trial more, the search gets it.
        of_baseline = min(max(math.ceil(num_trials * baseline.budget_share - 0.5), 1), num_trials - 1)
        allotments = {
            Phase.SEARCH: num_trials - of_baseline,
            Phase.BASELINE: of_baseline + budget.extra_baseline_trials,
        }
    allotments[Phase.SEARCH] += budget.extra_search_trials
    if (sizes := _sizes(specification, allotments)) is not None:
        allotments[Phase.CONFIRMATION] = len(allotments) * (sizes.top_k * sizes.num_choosing + sizes.num_comparing)
    return allotments


def confirmation_of(specification: JobSpecification) -> ConfirmationSizes | None:
    """The sizes of a job's confirmation; None: it has none.

    Raises:
        InvalidInput: the phases have too few trials.
    """
    found = allot(specification)
    found.pop(Phase.CONFIRMATION, None)
    return _sizes(specification, found)


def _sizes(specification: JobSpecification, allotments: Mapping[Phase, int]) -> ConfirmationSizes | None:
    """The sizes, from the trials of search and baseline."""
    asked, fewest = specification.confirmation, min(allotments.values())
    if asked == "auto":
        is_worth_it = fewest >= MIN_TRIED and specification.pruner.name != "pbt"
        asked = ConfirmationChoice() if is_worth_it else None
    if asked is None:
        return None
    if asked.top_k is not None and asked.top_k > allotments[Phase.SEARCH]:
        raise InvalidInput(
            "confirmation.top_k", f"{asked.top_k} exceeds the search's {allotments[Phase.SEARCH]} trials"
        )
    top_k = asked.top_k or min(DEFAULT_TOP_K, fewest)
    choosing = num_choosing(top_k=top_k, num_seeds=asked.num_seeds)
    return ConfirmationSizes(top_k, choosing, asked.num_seeds - choosing)


def check_workload_options(
    field: str, space: SearchSpace, workload: WorkloadDescription, *, given: Mapping[str, JsonValue]
) -> None:
    """Each option that the space assigns is the workload's, and not one that the job holds fixed.

    Raises:
        InvalidInput: names the parameter; `field` is where the space stands.
    """
    named = {f"parameters[{index}].name": parameter.name for index, parameter in enumerate(space.parameters)}
    named.update({f"fixed.{name}": name for name in space.fixed})
    for where, name in named.items():
        section, option = sectioned(name)
        if section == "workload" and option not in workload.options:
            known = ", ".join(sorted(workload.options)) or "none"
            raise InvalidInput(
                f"{field}.{where}",
                f"workload {workload.name!r} has no option {option!r} (it has: {known})"
                f"{did_you_mean(option, workload.options)}",
            )
        if section == "workload" and option in given:
            raise InvalidInput(
                f"{field}.{where}", f"workload.options holds {option!r} at {given[option]!r}: leave one of them out"
            )


def _space(field: str, given: str | dict[str, JsonValue]) -> SearchSpace:
    if isinstance(given, str):
        if given not in presets():
            known = sorted(presets())
            hint = did_you_mean(given, known)
            raise InvalidInput(field, f"unknown preset {given!r} (known: {', '.join(known)}){hint}")
        return preset(given)
    try:
        return SearchSpace.from_json(given)
    except SpaceError as error:
        raise InvalidInput(f"{field}.{error.field}" if error.field else field, error.message) from error


def _pinned(field: str, given: Pinned, space: SearchSpace) -> tuple[dict[str, Scalar], ...]:
    """The assignments of a space that are to be tried first."""
    found: list[dict[str, Scalar]] = []
    for index, entry in enumerate(given):
        try:
            if entry == "winners":
                continue  # they are found when the job is submitted
            if entry != "algoperf":
                values = entry.parameters if isinstance(entry, EarlierWinner) else entry
                found.append(space.defaults(values))  # type: ignore[arg-type]  # it checks the values
                continue
            points = algoperf_points(space)
        except SpaceError as error:
            where = f"{field}[{index}]{'.parameters' if isinstance(entry, EarlierWinner) else ''}"
            names_one = error.field in {parameter.name for parameter in space.parameters}
            raise InvalidInput(f"{where}.{error.field}" if names_one else where, error.message) from error
        if not points:
            raise InvalidInput(f"{field}[{index}]", f"'algoperf': no point is of {space.optimizer!r} in this space")
        found.extend(points)
    return tuple(found)
