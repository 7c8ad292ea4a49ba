"""The phases of a job and its sides: their search spaces, what each tries first, and how many trials each gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from pydantic import JsonValue

from search_spaces import Scalar, SearchSpace, SpaceError, algoperf_points, preset, presets
from search_spaces.errors import all_of
from search_spaces.nearest import did_you_mean
from search_spaces.parameters import sectioned
from service.domain import Phase, Side
from service.errors import InvalidInput, TooFewTrials
from service.evidence.comparison.finalists import num_choosing
from service.evidence.types import MIN_TRIED
from service.faults import Faults, one_of
from service.specification.external.trials import EXTERNAL
from service.specification.job import (
    ConfirmationChoice,
    EarlierWinner,
    JobSpecification,
    MovedConfig,
    Pinned,
    PinnedEntry,
)
from service.specification.length import with_batch_size_of_search
from trainers.workload.description import WorkloadDescription

DEFAULT_TOP_K = 2
"""Configs of each side that are trained with new seeds: the fewest among which they can choose; each more costs a
training for each seed."""
_FINEST_SHARE = 10**6
"""Largest denominator of a share, which makes 0.1 a tenth and not the nearest binary number. Finer than any job has
trials."""


@dataclass(frozen=True, slots=True)
class SideFields:
    """The fields of a specification that say what a side searches, and what it tries first."""

    space: str
    pinned: str


@dataclass(frozen=True, slots=True)
class ConfirmationSizes:
    """The size of a confirmation."""

    top_k: int
    """Configs of each side."""
    num_choosing: int
    """New seeds that each of them is trained with."""
    num_comparing: int
    """New seeds that the search's chosen one and that of the baselines are trained with."""

    @property
    def num_seeds(self) -> int:
        """All new seeds."""
        return self.num_choosing + self.num_comparing


def fields_of(specification: JobSpecification) -> dict[Side, SideFields]:
    """The fields of each side, the search first, the baselines in their order.

    Raises:
        InvalidInput: a baseline's space is none, or two have the same optimizer; names the field.
    """
    fields, faults = {Phase.SEARCH.value: SideFields("search_space", "pinned")}, Faults()
    for index, baseline in enumerate(specification.baselines):
        own = SideFields(f"baselines[{index}].search_space", f"baselines[{index}].pinned")
        with faults.noted():
            optimizer = _space(own.space, baseline.search_space).optimizer
            if optimizer in fields:
                raise InvalidInput(
                    own.space, f"tunes {optimizer!r}, as {fields[optimizer].space} does: leave one of them out"
                )
            fields[optimizer] = own
    faults.tell()
    return fields


def spaces_of(specification: JobSpecification, *, num_steps: int | None = None) -> dict[Side, SearchSpace]:
    """The search spaces of the sides.

    Args:
        num_steps: steps of a trial, if presets are to begin with a learning rate for that length, on all sides alike.
            Not where clients train what only they know: their steps may be epochs.

    Raises:
        InvalidInput: one is none, or two baselines have the same optimizer; names what is wrong.
    """
    given = [specification.search_space, *(baseline.search_space for baseline in specification.baselines)]
    faults = Faults()
    with faults.noted():
        _space("search_space", specification.search_space)
    with faults.noted():
        fields_of(specification)
    faults.tell()
    fields = {side: own.space for side, own in fields_of(specification).items()}
    num_steps = None if specification.workload.name == EXTERNAL else num_steps
    own = {side: _space(field, space, num_steps) for (side, field), space in zip(fields.items(), given, strict=True)}
    return with_batch_size_of_search(own, fields)


def pinned_of(
    specification: JobSpecification, spaces: Mapping[Side, SearchSpace]
) -> dict[Side, tuple[dict[str, Scalar], ...]]:
    """The assignments that each side tries first, after the defaults.

    Raises:
        InvalidInput: the space has no such values; names the parameter.
    """
    fields, found, faults = fields_of(specification), dict[Side, tuple[dict[str, Scalar], ...]](), Faults()
    for (side, own), pinned in zip(fields.items(), specification.pinned_of_sides, strict=True):
        with faults.noted():
            found[side] = _pinned(own.pinned, pinned, spaces[side])
    faults.tell()
    return found


def known_configs_tried(specification: JobSpecification, space: SearchSpace) -> list[MovedConfig]:
    """The known configs of the search that its budget suffices for, after the defaults and what is pinned before them.
    Trials that users propose come on top.

    Args:
        space: the search's, as its trials have it.

    Raises:
        InvalidInput: as `allot` and `pinned_of`.
    """
    num_own = _allot_budget(specification)[0]
    beginning, tried = space.branch_defaults(), list[MovedConfig]()
    for index, entry in enumerate(specification.pinned):
        for values in _assignments(f"pinned[{index}]", entry, space):
            if values not in beginning:
                beginning.append(values)
            if isinstance(entry, MovedConfig) and beginning.index(values) < num_own:
                tried.append(entry)
    return tried


def allot(specification: JobSpecification) -> dict[Phase, int]:
    """The number of trials of each phase; the confirmation has fewer if fewer configs complete than it is to confirm.

    Raises:
        InvalidInput: there are too few for the phases, or the baselines' shares leave the search none.
    """
    of_sides = _allot_sides(specification)
    allotments = {Phase.SEARCH: of_sides[0]}
    if specification.baselines:
        allotments[Phase.BASELINE] = sum(of_sides[1:])
    if (sizes := _sizes(specification, of_sides)) is not None:
        allotments[Phase.CONFIRMATION] = (
            len(of_sides) * sizes.top_k * sizes.num_choosing + len(allotments) * sizes.num_comparing
        )
    return allotments


def allot_sides(specification: JobSpecification) -> dict[Side, int]:
    """The number of trials of each side.

    Raises:
        InvalidInput: as `allot` and `fields_of`.
    """
    return dict(zip(fields_of(specification), _allot_sides(specification), strict=True))


def num_searched(specification: JobSpecification) -> int:
    """Trials of search and baselines, the extra ones included.

    Raises:
        InvalidInput: as `allot`.
    """
    return sum(_allot_sides(specification))


def num_left_over(specification: JobSpecification) -> int:
    """Trials of `budget.num_trials` that no side gets, because sides with equal shares get equally many.

    Raises:
        InvalidInput: as `allot`.
    """
    return specification.budget.num_trials - sum(_allot_budget(specification))


def _allot_sides(specification: JobSpecification) -> list[int]:
    """The trials of the search, and of each baseline."""
    extra = [
        specification.budget.extra_search_trials,
        *(baseline.extra_trials for baseline in specification.baselines),
    ]
    return [own + more for own, more in zip(_allot_budget(specification), extra, strict=True)]


def _allot_budget(specification: JobSpecification) -> tuple[int, ...]:
    """The trials of each side without the extra ones."""
    return _allotted(
        specification.budget.num_trials, tuple(baseline.budget_share for baseline in specification.baselines)
    )


@lru_cache(maxsize=256)
def _allotted(num_trials: int, given: tuple[float | None, ...]) -> tuple[int, ...]:
    """The trials of the budget of the search, and of each baseline.

    Args:
        given: the share of each baseline; None: an even one.

    Raises:
        TooFewTrials: there is not one for each side.
        InvalidInput: the baselines' shares leave the search none.
    """
    left = 1 - sum(
        (Fraction(share).limit_denominator(_FINEST_SHARE) for share in given if share is not None), Fraction()
    )
    if left <= 0:
        index = max(index for index, share in enumerate(given) if share is not None)
        raise InvalidInput(
            f"baselines[{index}].budget_share",
            f"leaves nothing to the search: the shares must add up to less than 1, got {float(1 - left):g}",
        )
    if num_trials < 1 + len(given):
        of = "a baseline" if len(given) == 1 else f"{len(given)} baselines"
        raise TooFewTrials(f"a job with {of} needs at least {1 + len(given)} trials, got {num_trials}")
    even = left / (1 + given.count(None))
    shares = [even if share is None else Fraction(share).limit_denominator(_FINEST_SHARE) for share in given]
    return _divided(num_trials, (1 - sum(shares, Fraction()), *shares))


def _divided(num_trials: int, shares: tuple[Fraction, ...]) -> tuple[int, ...]:
    """`num_trials` divided by `shares`, at least one each; equal shares get equally many.

    The method of Webster and Sainte-Laguë: with two sides it rounds to the nearest, and more trials to divide are never
    fewer for anyone. It gives a trial that equal shares cannot divide to the first named; here nobody has it, so that a
    budget may have a few trials left over. A comparison of sides that were promised the same is worth more than that
    one trial.
    """
    found = [1] * len(shares)
    for _ in range(num_trials - len(shares)):
        claims = [share / (2 * own + 1) for share, own in zip(shares, found, strict=True)]
        found[claims.index(max(claims))] += 1
    fewest: dict[Fraction, int] = {}
    for share, own in zip(shares, found, strict=True):
        fewest[share] = min(own, fewest.get(share, own))
    return tuple(fewest[share] for share in shares)


def confirmation_of(specification: JobSpecification) -> ConfirmationSizes | None:
    """The sizes of a job's confirmation; None: it has none.

    Raises:
        InvalidInput: the phases have too few trials.
    """
    return _sizes(specification, _allot_sides(specification))


def num_kept_weights(specification: JobSpecification) -> int:
    """The number of files of trained weights that a job leaves: the recommended config's and the baselines' best one's,
    where it is confirmed and trains its trials itself.

    Raises:
        InvalidInput: the phases have too few trials.
    """
    if not specification.keep_weights or specification.external is not None or confirmation_of(specification) is None:
        return 0
    return 1 + bool(specification.baselines)


def _sizes(specification: JobSpecification, of_sides: Sequence[int]) -> ConfirmationSizes | None:
    """The sizes, from the trials of the search and of each baseline."""
    asked, fewest = specification.confirmation, min(of_sides)
    if asked == "auto":
        is_worth_it = fewest >= MIN_TRIED and specification.pruner.name != "pbt"
        asked = ConfirmationChoice() if is_worth_it else None
    if asked is None:
        return None
    if asked.top_k is not None and asked.top_k > of_sides[0]:
        raise InvalidInput("confirmation.top_k", f"{asked.top_k} exceeds the search's {of_sides[0]} trials")
    top_k = asked.top_k or min(DEFAULT_TOP_K, fewest)
    choosing = num_choosing(top_k=top_k, num_seeds=asked.num_seeds, num_baselines=len(of_sides) - 1)
    return ConfirmationSizes(top_k, choosing, asked.num_seeds - choosing)


def check_workload_options(
    field: str, space: SearchSpace, workload: WorkloadDescription, *, given: Mapping[str, JsonValue]
) -> None:
    """Refuses a space that assigns an option which the workload lacks or the job holds fixed.

    Raises:
        InvalidInput: names every such parameter; `field` is where the space stands.
    """
    faults = Faults()
    named = {f"parameters[{index}].name": parameter.name for index, parameter in enumerate(space.parameters)}
    named.update({f"fixed.{name}": name for name in space.fixed})
    for where, name in named.items():
        section, option = sectioned(name)
        if section == "workload" and option not in workload.options:
            known = ", ".join(sorted(workload.options)) or "none"
            hint = did_you_mean(option, workload.options)
            message = f"workload {workload.name!r} has no option {option!r} (it has: {known}){hint}"
            faults.note(InvalidInput(f"{field}.{where}", message))
        if section == "workload" and option in given:
            message = f"workload.options holds {option!r} at {given[option]!r}: leave one of them out"
            faults.note(InvalidInput(f"{field}.{where}", message))
    faults.tell()


def _space(field: str, given: str | dict[str, JsonValue], num_steps: int | None = None) -> SearchSpace:
    if isinstance(given, str):
        if given not in presets():
            known = sorted(presets())
            hint = did_you_mean(given, known)
            raise InvalidInput(field, f"unknown preset {given!r} (known: {', '.join(known)}){hint}")
        return preset(given, num_steps=num_steps)
    try:
        return SearchSpace.from_json(given)
    except SpaceError as error:
        raise one_of(
            [InvalidInput(f"{field}.{one.field}" if one.field else field, one.message) for one in all_of(error)]
        ) from error


def _pinned(field: str, given: Pinned, space: SearchSpace) -> tuple[dict[str, Scalar], ...]:
    """The assignments of a space that are to be tried first."""
    found: list[dict[str, Scalar]] = []
    faults = Faults()
    for index, entry in enumerate(given):
        with faults.noted():
            found += _assignments(f"{field}[{index}]", entry, space)
    faults.tell()
    return tuple(found)


def _assignments(field: str, entry: PinnedEntry, space: SearchSpace) -> Sequence[dict[str, Scalar]]:
    """The assignments that an entry stands for."""
    try:
        if entry in ("winners", "nearest"):
            return []  # they are found when the job is submitted
        if entry != "algoperf":
            values = entry.parameters if isinstance(entry, EarlierWinner | MovedConfig) else entry
            return [space.defaults(values)]  # type: ignore[arg-type]  # it checks the values
        points = algoperf_points(space)
    except SpaceError as error:
        where = f"{field}{'.parameters' if isinstance(entry, EarlierWinner | MovedConfig) else ''}"
        names_one = error.field in {parameter.name for parameter in space.parameters}
        raise InvalidInput(f"{where}.{error.field}" if names_one else where, error.message) from error
    if not points:
        raise InvalidInput(
            field, f"'algoperf' has no point of {space.optimizer!r} that lies in this space: leave it out"
        )
    return points
