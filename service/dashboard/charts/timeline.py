"""The timeline: which trials ran when, beside what, and which one was forked from which. Pure functions.

Trials are laid into lanes: each takes the first one that is free when it begins, and keeps it until it pauses or ends.
There are as many lanes as trials ran at once. A lane is no device: the machine and GPUs of a stretch are told with it.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from service.dashboard.charts.columns import rounded_all
from service.domain import FailureReason, TrialState
from service.evidence.in_words.wording import counted
from service.places import words_by_run
from service.store.repositories.of_trials.chart_rows import LaneTrial, Turn


class StretchEnding(StrEnum):
    """The way in which a stretch of training ended; also the order of the legend."""

    COMPLETED = "completed"
    RUNNING = "running"
    PAUSED = "paused"
    """It went on later, or is to."""
    STOPPED = "stopped early"
    DIVERGED = "diverged"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDINGS = {
    TrialState.COMPLETED: StretchEnding.COMPLETED,
    TrialState.RUNNING: StretchEnding.RUNNING,
    TrialState.QUEUED: StretchEnding.PAUSED,
    TrialState.PRUNED: StretchEnding.STOPPED,
    TrialState.FAILED: StretchEnding.FAILED,
    TrialState.CANCELLED: StretchEnding.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a trial trained without a pause."""

    number: int
    began: datetime
    ended: datetime
    ending: StretchEnding
    turn: int
    """1: its first; more after a pause or another try."""
    place: str | None = None
    """The machines and GPUs of it, in words; None: that is not stored."""


@dataclass(frozen=True, slots=True)
class ForkNode:
    """A trial in the tree of forks."""

    number: int
    row: int
    parent_row: int | None
    """None: it began from nothing."""
    first_step: int
    last_step: int
    value: float | None
    ending: StretchEnding


def stretches_of(trials: Sequence[LaneTrial], turns: Sequence[Turn], *, now: datetime) -> list[Stretch]:
    """The stretches of all trials by beginning; where what happened to a trial is not stored any more, its whole time.

    Args:
        turns: in their order.
        now: when what runs is cut off.
    """
    of_trial: dict[int, list[Turn]] = defaultdict(list)
    for turn in turns:
        of_trial[turn.number].append(turn)
    found = []
    for trial in trials:
        own = _stretches(trial, of_trial.get(trial.number, []), now) or _whole(trial, now)
        words = words_by_run(trial.places)
        # Counted from the last one: of a trial whose events were removed, that is all there is.
        found += [replace(stretch, place=words.get(trial.runs - len(own) + stretch.turn)) for stretch in own]
    return sorted(found, key=lambda stretch: (stretch.began, stretch.number))


def lanes_of(stretches: Sequence[Stretch]) -> list[int]:
    """A lane for each of the stretches, which are by beginning: the lowest that is free."""
    free: list[int] = []
    busy: list[tuple[datetime, int]] = []
    lanes = []
    for stretch in stretches:
        while busy and busy[0][0] <= stretch.began:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (stretch.ended, lane))
        lanes.append(lane)
    return lanes


def idle_share(stretches: Sequence[Stretch], num_lanes: int) -> float | None:
    """The part of all lanes' time, from the first beginning to the last end, in which nothing ran; None: no time."""
    if not stretches:
        return None
    span = (max(stretch.ended for stretch in stretches) - stretches[0].began).total_seconds() * num_lanes
    busy = sum((stretch.ended - stretch.began).total_seconds() for stretch in stretches)
    return max(0.0, 1 - busy / span) if span > 0 else None


def summary(trials: Sequence[LaneTrial], stretches: Sequence[Stretch], num_lanes: int) -> list[str]:
    """The timeline in sentences."""
    if not stretches:
        return []
    at_once = f"Up to {num_lanes} trials ran at once" if num_lanes > 1 else "One trial ran at a time"
    idle = idle_share(stretches, num_lanes)
    lines = [
        at_once
        + ("." if idle is None else f"; from the first one's start on, nothing ran for {_share(idle)} of the time.")
    ]
    breaks = Counter(stretch.number for stretch in stretches if stretch.ending is StretchEnding.PAUSED)
    # The others are told below, and nobody paused these.
    paused = sum(breaks[trial.number] > trial.losses + trial.memory_failures for trial in trials)
    lost = sum(trial.losses for trial in trials)
    memory = sum(trial.memory_failures for trial in trials)
    if paused:
        lines.append(f"{counted(paused, 'trial')} paused on the way.")
    again = [f"{_times(count)} {why}" for count, why in ((lost, "after a loss"), (memory, "with less memory")) if count]
    if again:
        lines.append(f"Trials were taken up again {', '.join(again)}.")
    devices = Counter(trial.device_name for trial in trials if trial.device_name)
    if devices:
        of_devices = (f"{name} ({counted(count, 'trial')})" for name, count in devices.most_common())
        lines.append(f"Devices: {', '.join(of_devices)}.")
    lines.append("A lane is no device: a trial takes the first one that is free when it begins.")
    if any(stretch.place for stretch in stretches):
        lines.append("Where each stretch trained stands in the table and under the pointer.")
    return lines


def timeline_columns(stretches: Sequence[Stretch], lanes: Sequence[int], *, origin: datetime) -> dict[str, Any]:
    """Stretches as columns, in seconds since `origin`; an ending by its index among all, a place by that among
    `places_told`."""
    indices = {place: index for index, place in enumerate(places_told(stretches))}
    order = {ending: place for place, ending in enumerate(StretchEnding)}
    return {
        "number": [stretch.number for stretch in stretches],
        "lane": list(lanes),
        "from": rounded_all(((stretch.began - origin).total_seconds() for stretch in stretches), 6),
        "to": rounded_all(((stretch.ended - origin).total_seconds() for stretch in stretches), 6),
        "ending": [order[stretch.ending] for stretch in stretches],
        "turn": [stretch.turn for stretch in stretches],
        "place": [None if stretch.place is None else indices[stretch.place] for stretch in stretches],
    }


def places_told(stretches: Iterable[Stretch]) -> list[str]:
    """The places of the stretches, each once."""
    return sorted({stretch.place for stretch in stretches if stretch.place is not None})


def forks_of(trials: Sequence[LaneTrial]) -> list[ForkNode]:
    """The tree of forks, a row for each trial, those of a parent below it; empty if nothing was forked."""
    by_number = {trial.number: trial for trial in trials}
    children: dict[int, list[LaneTrial]] = defaultdict(list)
    roots = []
    for trial in trials:
        if trial.forked_from in by_number and trial.forked_from is not None:
            children[trial.forked_from].append(trial)
        else:
            roots.append(trial)
    if not children:
        return []
    rows: dict[int, int] = {}
    found = []
    waiting = roots[::-1]
    while waiting:
        trial = waiting.pop()
        rows[trial.number] = len(rows)
        found.append(
            ForkNode(
                number=trial.number,
                row=rows[trial.number],
                parent_row=None if trial.forked_from is None else rows.get(trial.forked_from),
                first_step=trial.forked_at_step or 0,
                last_step=max(trial.step, trial.forked_at_step or 0),
                value=trial.value,
                ending=_ending(trial.state, trial.reason),
            )
        )
        waiting += sorted(children[trial.number], key=lambda child: (child.forked_at_step or 0, child.number))[::-1]
    return found


def fork_columns(forks: Iterable[ForkNode]) -> dict[str, Any]:
    every = list(forks)
    return {
        "number": [fork.number for fork in every],
        "parent": [fork.parent_row for fork in every],
        "first": [fork.first_step for fork in every],
        "last": [fork.last_step for fork in every],
        "value": rounded_all(fork.value for fork in every),
        "ending": [fork.ending.value for fork in every],
    }


def _stretches(trial: LaneTrial, turns: Sequence[Turn], now: datetime) -> list[Stretch]:
    """The stretches that a trial's turns tell of; empty if they are not stored any more."""
    found: list[tuple[datetime, datetime, TrialState]] = []
    began: datetime | None = None
    for turn in turns:
        if turn.state is TrialState.RUNNING:
            began = began or turn.at  # told again when it is asked to stop
        elif began is not None:
            found.append((began, turn.at, turn.state))
            began = None
    if began is not None:
        found.append((began, now, TrialState.RUNNING))
    last = len(found)
    return [
        Stretch(trial.number, start, end, _ending(state, trial.reason if place == last else None), place)
        for place, (start, end, state) in enumerate(found, start=1)
    ]


def _whole(trial: LaneTrial, now: datetime) -> list[Stretch]:
    if trial.started_at is None:
        return []
    ended = trial.finished_at or now
    return [
        Stretch(trial.number, trial.started_at, max(trial.started_at, ended), _ending(trial.state, trial.reason), 1)
    ]


def _ending(state: TrialState, reason: FailureReason | None) -> StretchEnding:
    return StretchEnding.DIVERGED if reason is FailureReason.DIVERGED else _ENDINGS[state]


def _share(part: float) -> str:
    return "under 1%" if part < 0.01 else f"{100 * part:.0f}%"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
