"""The table of a job's trials as plain values: what is asked of it, its columns, and the rows of one page."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlencode

from search_spaces import SearchSpace
from search_spaces.nearest import did_you_mean
from service.domain import Direction, Phase, Side
from service.errors import InvalidInput
from service.store.repositories import (
    ListedTrial,
    NumberRange,
    ParameterKey,
    TrialKey,
    TrialQuery,
    TrialSorting,
)

TRIALS_PER_PAGE = 50
"""Trials of a page, by judgement: some screens full."""
NEWEST_FIRST = TrialSorting(TrialKey.NUMBER, is_descending=True)
FILTERS = ("state", "phase", "value", "parameter")
"""Names in an address that leave trials out; the API's list and its export take the same."""
_OF_PAGES = ("page", "trial", "held")
_TITLES: dict[TrialKey | ParameterKey, str] = {
    TrialKey.STATE: "State",
    TrialKey.PHASE: "Phase",
    TrialKey.STEP: "Step",
    TrialKey.SECONDS: "Time",
}
_LARGEST_FIRST = (TrialKey.NUMBER, TrialKey.STEP, TrialKey.SECONDS)


@dataclass(frozen=True, slots=True)
class OptionalColumn:
    """A column of the table that a reader may choose, beside the numbers of trials."""

    key: TrialKey | ParameterKey
    title: str
    is_shown: bool
    first: TrialSorting
    """The order when it is first asked for."""

    @property
    def name(self) -> str:
        """The column's name in an address."""
        return str(TrialSorting(self.key))


NUMBERS = OptionalColumn(TrialKey.NUMBER, "#", is_shown=True, first=NEWEST_FIRST)
"""The one column that is always shown."""


def columns_of(
    spaces: Mapping[Side, SearchSpace], *, metric: str, direction: Direction, chosen: str | None
) -> list[OptionalColumn]:
    """The columns of a job's table, the parameters of the search before those of the baselines.

    Args:
        metric: of the first objective.
        chosen: names of the columns that are shown, with commas; None: all are.

    Raises:
        InvalidInput: there is no such column.
    """
    parameters = dict.fromkeys(parameter.name for space in spaces.values() for parameter in space.parameters)
    titles: dict[TrialKey | ParameterKey, str] = {TrialKey.VALUE: metric, **_TITLES}
    titles |= {ParameterKey(name): name for name in parameters}
    names = {str(TrialSorting(key)): key for key in titles}
    wanted = names.keys() if chosen is None else set(filter(None, chosen.split(",")))
    for name in wanted - names.keys():
        raise InvalidInput("columns", f"there is no column {name[:80]!r}{did_you_mean(name, list(names))}")

    def first(key: TrialKey | ParameterKey) -> TrialSorting:
        is_best_highest = key is TrialKey.VALUE and direction is Direction.MAXIMIZE
        return TrialSorting(key, is_descending=is_best_highest or key in _LARGEST_FIRST)

    return [OptionalColumn(key, titles[key], name in wanted, first(key)) for name, key in names.items()]


@dataclass(frozen=True, slots=True)
class Filter:
    """Something by which trials are left out, as its button says it."""

    name: str
    """The name of the address's parameter."""
    value: str
    """The one of several filters with that name: a state, the name of a parameter; else empty."""
    words: str


@dataclass(frozen=True, slots=True)
class TableAddress:
    """The query of the address of a page of the table, and of others beside it."""

    asked: Sequence[tuple[str, str]]
    """Names and values, those of other sections of the page too."""

    def page(self, number: int) -> str:
        """The query of another page of the same table."""
        kept = [pair for pair in self.asked if pair[0] not in _OF_PAGES]
        return "?" + urlencode([*kept, *([] if number == 1 else [("page", str(number))])])

    @property
    def filters(self) -> list[tuple[str, str]]:
        """The filters that leave trials out."""
        return [(name, value) for name, value in self.asked if name in FILTERS and value]

    @property
    def export(self) -> str:
        """The query of the export of all trials that are found."""
        return "?" + urlencode([("table", "trials"), ("format", "csv"), *self.filters])


def filters_of(query: TrialQuery, *, metric: str) -> list[Filter]:
    """The filters that leave trials out, in words."""
    found = [Filter("state", state, state) for state in query.states]
    found += [] if query.phase is None else [Filter("phase", "", query.phase)]
    found += [] if query.value is None else [Filter("value", "", f"{metric} {_range_words(query.value)}")]
    return found + [
        Filter("parameter", asked.name, f"{asked.name} {_wanted_words(asked.wanted)}") for asked in query.parameters
    ]


@dataclass(frozen=True, slots=True)
class TrialTable:
    """A page of the table."""

    best: Sequence[ListedTrial]
    """The best of each side, in sight on every page."""
    rows: Sequence[ListedTrial]
    num_found: int
    """Number of trials on all pages."""
    num_trials: int
    """Trials of the job."""
    page: int
    """Number of the page, from 1 on."""
    order: TrialSorting
    columns: Sequence[OptionalColumn]
    """All of them."""
    address: TableAddress
    filters: Sequence[Filter]
    num_new: int = 0
    """Trials that this page would have now, were its rows not held."""
    is_reordered: bool = False
    """True if its rows would stand in another order now, or elsewhere."""
    is_missing: bool = False
    """True if the trial whose page was asked for is not among those that are found."""
    printing: Collection[int] = ()
    """The trials whose ranks printed something."""
    repeated: Mapping[int, Phase] = field(default_factory=dict)
    """The phase of each trial that one of the confirmation repeats, by number."""

    def trained_as(self, trial: ListedTrial) -> Phase:
        """The phase whose config a trial has: the search or a baseline, also in the confirmation."""
        return trial.phase if trial.confirms is None else self.repeated.get(trial.confirms, trial.phase)

    @property
    def heads(self) -> list[OptionalColumn]:
        """The columns that are shown, the numbers of trials before the others."""
        return [NUMBERS, *(column for column in self.columns if column.is_shown)]

    @property
    def own(self) -> list[TrialKey]:
        """The columns that are a trial's own, not a parameter's; the first ones, without the numbers."""
        return [head.key for head in self.heads[1:] if isinstance(head.key, TrialKey)]

    @property
    def parameter_names(self) -> list[str]:
        """The parameters that are shown."""
        return [head.key.name for head in self.heads if isinstance(head.key, ParameterKey)]

    @property
    def num_pages(self) -> int:
        return max(1, -(-self.num_found // TRIALS_PER_PAGE))

    @property
    def first_row(self) -> int:
        """The place of the first row among all that are found, from 1 on."""
        return (self.page - 1) * TRIALS_PER_PAGE + 1

    def sorting(self, column: OptionalColumn) -> str | None:
        """The value of `aria-sort` of a column's head; None: the table is in another order."""
        if self.order.by != column.key:
            return None
        return "descending" if self.order.is_descending else "ascending"

    def next_order(self, column: OptionalColumn) -> TrialSorting:
        """The order that a column's head asks for."""
        return replace(self.order, is_descending=not self.order.is_descending) if self.sorting(column) else column.first


def held_numbers(held: Sequence[int], now: Sequence[int]) -> list[int]:
    """The trials of a page whose reader has some of them before his eyes, in the order in which he has them.

    What only follows them is added: that moves nothing.

    Args:
        held: those that he has; none: he has none.
        now: those that the page would have.
    """
    return list(now) if not held or list(now[: len(held)]) == list(held) else list(held)


def _range_words(wanted: NumberRange) -> str:
    if wanted.low == wanted.high and wanted.low is not None:
        return f"{wanted.low:g}"
    if wanted.low is None:
        return f"up to {wanted.high:g}"
    return f"from {wanted.low:g}" if wanted.high is None else f"{wanted.low:g} to {wanted.high:g}"


def _wanted_words(wanted: NumberRange | str) -> str:
    return _range_words(wanted) if isinstance(wanted, NumberRange) else wanted
