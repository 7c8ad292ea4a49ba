"""Figures: typed values that know what is wrong with them, and the file and tables they end up in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

Cell = str | int | float


class Measured(Protocol):
    """The value of a figure: a dataclass of numbers, words and lists of them."""

    @property
    def problem(self) -> str | None:
        """The fault, for a person; None: there is none."""

    @property
    def summary(self) -> str:
        """The numbers, in a line of the table."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far numbers are from those that they should be."""

    deviation: float
    limit: float
    """The largest deviation that rounding explains."""

    @property
    def problem(self) -> str | None:
        # A comparison with NaN would let it pass.
        return None if self.deviation <= self.limit else f"deviates by {self.deviation:.3g}, limit {self.limit:.3g}"

    @property
    def share_of_limit(self) -> float:
        """Infinite where no deviation is allowed and there is one."""
        if self.limit == 0:
            return 0.0 if self.deviation == 0 else float("inf")
        return self.deviation / self.limit

    @property
    def summary(self) -> str:
        return f"{self.deviation:.2e} of {self.limit:.2e}"


@dataclass(frozen=True, slots=True)
class HostReads:
    """Where the host waited for the device in steps that should only queue work."""

    counted_on: str
    """`meta`: what an accelerator's path would read, counted without one."""
    num_steps: int
    reads: tuple[str, ...]
    """Each with the kind of step and what read."""

    @property
    def problem(self) -> str | None:
        return "; ".join(self.reads) or None

    @property
    def summary(self) -> str:
        return f"{len(self.reads)} in {self.num_steps} steps, on {self.counted_on}"


@dataclass(frozen=True, slots=True)
class Launches:
    """Launches of kernels that the profiler saw in a step of a small model."""

    device: str
    ordinary: int
    """Kernels of a step without a refresh; on the CPU operations, those inside of others included."""
    with_refresh: int
    ordinary_bytes: int
    """Memory that operations of such a step take for their results, each result counted, whenever it is freed."""
    bytes_with_refresh: int

    @property
    def problem(self) -> str | None:
        counts = (self.ordinary, self.with_refresh)
        is_counted = 0 < self.ordinary <= self.with_refresh and 0 <= self.ordinary_bytes <= self.bytes_with_refresh
        return None if is_counted else f"no count: {counts}, of {self.ordinary_bytes} and {self.bytes_with_refresh} B"

    @property
    def summary(self) -> str:
        ordinary, with_refresh = (number / 1e6 for number in (self.ordinary_bytes, self.bytes_with_refresh))
        seen = f"{self.ordinary} and {text(ordinary)} MB of results"
        return f"{seen}, {self.with_refresh} and {text(with_refresh)} MB with a refresh of all, on {self.device}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The refusal of an optimizer whose state does not fit."""

    message: str | None
    """That of its MemoryError; None: it was not refused."""
    trained_after: bool
    """True if the same process trained a small model then."""

    @property
    def problem(self) -> str | None:
        if self.message is None:
            return "a state larger than what is free was not refused"
        return None if self.trained_after else "the process could not train after that"

    @property
    def summary(self) -> str:
        return f"refused, then trained: {(self.message or '').partition(';')[0]}"


@dataclass(frozen=True, slots=True)
class LostRank:
    """The end of a rank, as the other one saw it."""

    told: str | None
    """Its error; None: it saw nothing."""

    @property
    def problem(self) -> str | None:
        return None if self.told else "the other rank saw no error, or none in time"

    @property
    def summary(self) -> str:
        return self.told or "nothing"


@dataclass(frozen=True, slots=True)
class SuiteTests:
    """The tests of the suite that are for GPUs alone."""

    device: str
    num_passed: int
    skipped: tuple[str, ...]
    failed: tuple[str, ...]

    @property
    def problem(self) -> str | None:
        if self.failed:
            return "failed: " + ", ".join(self.failed)
        if self.skipped and self.device != "cpu":
            return "skipped: " + ", ".join(self.skipped)
        return None if self.num_passed + len(self.skipped) else "no test was collected"

    @property
    def summary(self) -> str:
        return f"{self.num_passed} passed, {len(self.skipped)} skipped, {len(self.failed)} failed"


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps of one optimizer on a whole model's parameters, alternating with fused AdamW's; milliseconds are medians.

    A step is timed until the device has finished, so that on a GPU it has the time in which the host queues it. Bytes
    are of tensors, without what an allocator keeps.
    """

    member: str
    variation: str
    """How it differs from what is recommended; empty: not at all."""
    arguments: dict[str, object]
    """Keyword arguments of `Shampoo` that are not its defaults."""
    num_parameters: int
    solver: str | None
    period: int
    """Steps from refresh to refresh."""
    ordinary_ms: float
    """A step that refreshes nothing."""
    queue_ms: float
    """Of that the time until `step()` returns."""
    refresh_ms: float | None
    """A step that refreshes everything; None: the member refreshes nothing."""
    cycle_ms: float
    """The mean over a whole cycle, in which each step refreshes its share."""
    longest_ms: float
    """The longest step of a cycle."""
    adamw_ms: float
    floor_ms: float | None
    """The time of an ordinary step's products at the speed of `torch.mm` in float32; None: they are others."""
    state_bytes: int
    adamw_state_bytes: int
    scratch_bytes: int
    """Most memory that a step takes for itself, a refresh of everything included."""
    peak_bytes: int
    """Weights, gradients, state and scratch."""

    @property
    def ordinary_over_adamw(self) -> float:
        return self.ordinary_ms / self.adamw_ms

    @property
    def cycle_over_adamw(self) -> float:
        return self.cycle_ms / self.adamw_ms

    @property
    def problem(self) -> str | None:
        return None  # a time alone is neither right nor wrong

    @property
    def summary(self) -> str:
        return f"{self.cycle_ms:.3g} ms a step, {self.cycle_over_adamw:.3g} of AdamW's"


STEP_COLUMNS = (
    "optimizer",
    "refreshes every",
    "ordinary step, ms",
    "refresh of all, ms",
    "mean of a cycle, ms",
    "longest, ms",
    "mean over AdamW",
    "state, MB",
    "peak, MB",
)


def step_rows(times: Sequence[StepTimes]) -> list[list[Cell]]:
    """Rows of the table of optimizers, AdamW's first, which has been timed beside each of the others."""
    if not times:
        return []
    adamw = sorted(each.adamw_ms for each in times)[len(times) // 2]
    first = times[0]
    weights_and_gradients = first.peak_bytes - first.state_bytes - first.scratch_bytes
    peak = (weights_and_gradients + first.adamw_state_bytes) / 1e6
    rows: list[list[Cell]] = [
        ["fused AdamW", "-", adamw, "-", adamw, adamw, 1.0, first.adamw_state_bytes / 1e6, peak],
    ]
    for each in times:
        refreshes = each.refresh_ms is not None
        rows.append(
            [
                f"{each.member}, {each.variation}" if each.variation else each.member,
                each.period if refreshes else "-",
                each.ordinary_ms,
                each.refresh_ms if each.refresh_ms is not None else "-",
                each.cycle_ms,
                each.longest_ms,
                each.cycle_over_adamw,
                each.state_bytes / 1e6,
                each.peak_bytes / 1e6,
            ]
        )
    return rows


GROUP_COLUMNS = ("what", "figures", "wrong", "worst or only one", "seconds")


def group_rows(figures: Sequence[Figure]) -> list[list[Cell]]:
    """A row for each group of figures, in the order in which they were taken."""
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(figure.group, []).append(figure)
    rows: list[list[Cell]] = []
    for group, members in groups.items():
        seconds = sum(figure.seconds for figure in members)
        num_wrong = sum(figure.problem is not None for figure in members)
        rows.append([group, len(members), num_wrong, _worst(members), seconds])
    return rows


def _worst(figures: Sequence[Figure]) -> str:
    measured = [figure.measured for figure in figures if figure.measured is not None]
    comparisons = [each for each in measured if isinstance(each, Comparison)]
    if comparisons:
        return max(comparisons, key=lambda each: each.share_of_limit).summary
    return measured[0].summary if len(measured) == 1 else "-"


def text(cell: Cell) -> str:
    """A cell; floats with three significant digits."""
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if cell >= 100 else f"{cell:#.3g}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table to paste into a README."""
    lines = [list(columns), ["---", *("---:" for _ in columns[1:])], *([text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure_key(group: str, name: str) -> str:
    """A figure's name in the file, and wherever it is told."""
    return f"{group}: {name}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: what was measured, or why nothing was."""

    group: str
    name: str
    seconds: float
    measured: Measured | None
    failure: str | None = None
    """Why there is no value: the traceback, or that it hung or its process died."""

    @property
    def key(self) -> str:
        return figure_key(self.group, self.name)

    @property
    def problem(self) -> str | None:
        return self.failure if self.measured is None else self.measured.problem


@dataclass(slots=True)
class Results:
    """The figures of a stage, written anew after each of them."""

    path: Path
    stage: str
    options: Mapping[str, object]
    environment: Mapping[str, object] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Why figures were not taken, by name."""
    is_complete: bool = False
    """True once the stage came to its end, be it that its time was up."""

    @property
    def problems(self) -> dict[str, str]:
        return {figure.key: figure.problem for figure in self.figures if figure.problem is not None}

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)
        self.write()

    def write(self) -> None:
        """Replaces the file: whoever reads it, or stops this process, finds one that is whole."""
        content = {
            "stage": self.stage,
            "options": self.options,
            "environment": self.environment,
            "is_complete": self.is_complete,
            "problems": self.problems,
            "left_out": self.left_out,
            "figures": {
                figure.key: {
                    "seconds": figure.seconds,
                    "group": figure.group,
                    "problem": figure.problem,
                    "summary": None if figure.measured is None else figure.measured.summary,
                    "kind": type(figure.measured).__name__,
                    "values": None if figure.measured is None else _values(figure.measured),
                }
                for figure in self.figures
            },
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(content, indent=1) + "\n")
        draft.replace(self.path)


def _values(measured: Measured) -> dict[str, object]:
    values = asdict(measured)  # type: ignore[call-overload]  # each is a dataclass, which a protocol cannot say
    if isinstance(measured, StepTimes):
        values["ordinary_over_adamw"] = measured.ordinary_over_adamw
        values["cycle_over_adamw"] = measured.cycle_over_adamw
    return dict(values)
