"""From finished trials to a recommended config and its evidence: pure functions of plain values."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from service.domain import Direction, FailureReason, Phase, TrialState
from service.snippets import render

EQUAL_WITHIN = 0.005
"""Relative difference of the objective below which search and baseline count as equal."""

CAVEAT_ONE_SEED = (
    "Each config was trained once, with one seed, and the best of many is partly luck: "
    "repeat both winners with fresh seeds before relying on the difference."
)


class Verdict(StrEnum):
    """The best search trial against the best baseline trial, by the objective."""

    BETTER = "better"
    EQUAL = "equal"
    WORSE = "worse"
    NO_BASELINE = "no_baseline"


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """What is known of a trial when its job ends."""

    number: int
    phase: Phase
    state: TrialState
    reason: FailureReason | None
    config: Mapping[str, Any]
    """A `trainers.config.TrialConfig` as JSON."""
    value: float | None
    """Objective at the last measurement."""
    curve: Sequence[tuple[int, float, Mapping[str, float | None]]]
    """Step, training seconds and metrics of each measurement, by step; None where a metric was not finite."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The best completed trial of a phase."""

    number: int
    value: float
    config: dict[str, Any]
    """Its whole trial config."""
    metrics: dict[str, float | None]
    """All metrics of its last measurement."""
    num_steps: int
    """Steps it trained."""
    seconds: float
    """Seconds it trained, without evaluation and checkpoints."""


@dataclass(frozen=True, slots=True)
class ReachedBaseline:
    """When the recommended trial was first as good as the baseline's best trial was in the end."""

    step: int
    seconds: float
    baseline_step: int
    """Step at which the baseline's best trial first had that value itself."""
    baseline_seconds: float
    step_ratio: float
    """`baseline_step / step`: above 1, the recommended config needs fewer steps."""
    seconds_ratio: float | None
    """`baseline_seconds / seconds`; None if no time was measured."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a config is recommended, and how far to trust that."""

    metric: str
    direction: Direction
    best: Winner
    baseline: Winner | None
    """None: the job had no baseline, or none of its trials completed."""
    verdict: Verdict
    equal_within: float
    """Relative difference that `verdict` calls equal."""
    improvement: float | None
    """Difference to the baseline's best value as a share of it, positive if better; None without one, or if it is 0."""
    reached_baseline: ReachedBaseline | None
    """None: there is no baseline, or its value was never reached."""
    num_trials: dict[str, dict[str, int]]
    """Number of trials by phase and state; a failed one counts as `failed (reason)`."""
    seeds: list[int]
    """Seeds with which the two winners were trained."""
    caveats: list[str]


_TRAINING = (
    "num_steps",
    "batch_size",
    "gradient_clip_norm",
    "accumulation_steps",
    "precision",
    "averaging",
    "compression",
)
"""What of a trial's config changes how its optimizer does."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The config that a job recommends, with its evidence."""

    workload: str
    optimizer: str
    """Name of the optimizer: `shampoo`, `adamw` or `sgd`."""
    config: dict[str, Any]
    """Exactly the keyword arguments of the optimizer's constructor."""
    schedule: dict[str, Any]
    """Learning-rate schedule: the fields of `trainers.config.ScheduleConfig` that it uses."""
    training: dict[str, Any]
    """How the trial trained beside that: `num_steps`, `batch_size`, `gradient_clip_norm`, `accumulation_steps`,
    `precision`, `averaging` and `compression`."""
    workload_options: dict[str, Any]
    evidence: Evidence

    def to_json(self) -> dict[str, Any]:
        """The recommendation as JSON-able values."""
        return dataclasses.asdict(self)


def recommend(
    trials: Sequence[FinishedTrial], *, metric: str, direction: Direction, num_planned: int | None = None
) -> Recommendation | None:
    """The best completed search trial with its evidence; None if no search trial completed.

    A search that lost to the baseline still gives its best config, with verdict `worse`. If fewer than `num_planned`
    trials ran to an end of their own, because the time was up or the run failed, a caveat says so.
    """
    best = _winner(trials, Phase.SEARCH, direction)
    if best is None:
        return None
    baseline = _winner(trials, Phase.BASELINE, direction)
    winners = [best] if baseline is None else [best, baseline]
    evidence = Evidence(
        metric=metric,
        direction=direction,
        best=best,
        baseline=baseline,
        verdict=Verdict.NO_BASELINE if baseline is None else compare(best.value, baseline.value, direction),
        equal_within=EQUAL_WITHIN,
        improvement=None if baseline is None else improvement_over(baseline.value, best.value, direction),
        reached_baseline=_reached_baseline(trials, best, baseline, metric, direction),
        num_trials=_num_trials(trials),
        seeds=sorted({winner.config["seed"] for winner in winners}),
        caveats=_caveats(trials, baseline, num_planned),
    )
    return Recommendation(
        workload=best.config["workload"],
        optimizer=best.config["optimizer"]["name"],
        config=dict(best.config["optimizer"]["arguments"]),
        schedule={name: value for name, value in best.config["schedule"].items() if value is not None},
        training={name: best.config[name] for name in _TRAINING if name in best.config},
        workload_options=dict(best.config["workload_options"]),
        evidence=evidence,
    )


def python_snippet(recommendation: Recommendation) -> str:
    """Python to paste after `model`: the optimizer, its schedule and one training step, with the evidence on top."""
    return snippet_from_json(recommendation.to_json())


def snippet_from_json(recommendation: Mapping[str, Any]) -> str:
    """`python_snippet` of a recommendation in its stored form, `Recommendation.to_json()`."""
    return render(
        optimizer=recommendation["optimizer"],
        arguments=recommendation["config"],
        schedule=recommendation["schedule"],
        training=recommendation["training"],
        header=_header(recommendation),
    )


def _winner(trials: Sequence[FinishedTrial], phase: Phase, direction: Direction) -> Winner | None:
    sign = 1.0 if direction is Direction.MINIMIZE else -1.0
    candidates = [
        (sign * trial.value, trial.number, trial)
        for trial in trials
        if trial.phase is phase
        and trial.state is TrialState.COMPLETED
        and trial.value is not None
        and math.isfinite(trial.value)
    ]
    if not candidates:
        return None
    *_, trial = min(candidates, key=lambda candidate: candidate[:2])
    assert trial.value is not None
    step, seconds, metrics = trial.curve[-1] if trial.curve else (trial.config["num_steps"], 0.0, {})
    return Winner(trial.number, trial.value, dict(trial.config), dict(metrics), step, seconds)


def improvement_over(baseline: float, best: float, direction: Direction) -> float | None:
    """By how much `best` is better than `baseline`, as a share of it: negative if worse, None if infinite."""
    difference = baseline - best if direction is Direction.MINIMIZE else best - baseline
    ratio = difference / abs(baseline) if baseline else math.inf
    return ratio if math.isfinite(ratio) else None


def compare(best: float, baseline: float, direction: Direction) -> Verdict:
    """Whether the search's best value is better than the baseline's, equal to it within `EQUAL_WITHIN`, or worse."""
    improvement = improvement_over(baseline, best, direction)
    if best == baseline or (improvement is not None and abs(improvement) <= EQUAL_WITHIN):
        return Verdict.EQUAL
    return Verdict.BETTER if direction.is_better(best, than=baseline) else Verdict.WORSE


def _reached_baseline(
    trials: Sequence[FinishedTrial], best: Winner, baseline: Winner | None, metric: str, direction: Direction
) -> ReachedBaseline | None:
    if baseline is None:
        return None
    curves = {trial.number: trial.curve for trial in trials}
    ours = _first_reaching(curves[best.number], baseline.value, metric, direction)
    theirs = _first_reaching(curves[baseline.number], baseline.value, metric, direction)
    if ours is None or theirs is None:
        return None
    (step, seconds), (baseline_step, baseline_seconds) = ours, theirs
    return ReachedBaseline(
        step=step,
        seconds=seconds,
        baseline_step=baseline_step,
        baseline_seconds=baseline_seconds,
        step_ratio=baseline_step / step,
        seconds_ratio=baseline_seconds / seconds if seconds > 0 else None,
    )


def _first_reaching(
    curve: Sequence[tuple[int, float, Mapping[str, float | None]]], target: float, metric: str, direction: Direction
) -> tuple[int, float] | None:
    """Step and seconds of the first measurement at least as good as `target`."""
    for step, seconds, metrics in curve:
        value = metrics.get(metric)
        if value is not None and math.isfinite(value) and not direction.is_better(target, than=value):
            return step, seconds
    return None


def _num_trials(trials: Sequence[FinishedTrial]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        ending = f"{trial.state.value} ({trial.reason.value})" if trial.reason else trial.state.value
        counts.setdefault(trial.phase.value, Counter())[ending] += 1
    return {phase: dict(sorted(endings.items())) for phase, endings in sorted(counts.items())}


def _caveats(trials: Sequence[FinishedTrial], baseline: Winner | None, num_planned: int | None) -> list[str]:
    caveats = [CAVEAT_ONE_SEED]
    num_ended = sum(trial.state is not TrialState.CANCELLED for trial in trials)
    if num_planned is not None and num_ended < num_planned:
        caveats.append(f"The job ended early, after {num_ended} of {num_planned} trials.")
    num_baseline = sum(trial.phase is Phase.BASELINE for trial in trials)
    num_search = sum(trial.phase is Phase.SEARCH for trial in trials)
    if baseline is None:
        why = "none of its trials completed" if num_baseline else "the job had none"
        caveats.append(f"There is no baseline to compare with: {why}.")
    elif num_baseline < num_search:
        caveats.append(f"The search had {num_search} trials and the baseline {num_baseline}, which favours the search.")
    return caveats


def _header(recommendation: Mapping[str, Any]) -> list[str]:
    """The evidence in a few lines of plain words."""
    evidence = recommendation["evidence"]
    best, baseline, metric = evidence["best"], evidence["baseline"], evidence["metric"]
    counts = evidence["num_trials"]
    totals = ", ".join(f"{sum(endings.values())} {phase}" for phase, endings in sorted(counts.items(), reverse=True))
    lines = [
        f"{recommendation['optimizer']} for {recommendation['workload']}, from {totals} trials",
        f"{metric} ({evidence['direction']}): {best['value']!r} (trial {best['number']})",
    ]
    if options := recommendation["workload_options"]:
        # Tuned or chosen, they are part of what the arguments fit, and the code below cannot set them.
        named = ", ".join(f"{name}={value!r}" for name, value in sorted(options.items()))
        lines.append(f"with the workload's options {named}")
    if baseline is not None:
        name = baseline["config"]["optimizer"]["name"]
        lines.append(f"baseline {name}: {baseline['value']!r} (trial {baseline['number']}): {_comparison(evidence)}")
    if evidence["verdict"] == Verdict.WORSE:
        lines.append(f"NOT RECOMMENDED over {baseline['config']['optimizer']['name']}: the baseline did better.")
    reached = evidence["reached_baseline"]
    if reached is not None:
        lines.append(
            f"reached the baseline's best at step {reached['step']}, the baseline at {reached['baseline_step']}"
        )
    return [*lines, *evidence["caveats"]]


def _comparison(evidence: Mapping[str, Any]) -> str:
    share = "" if evidence["improvement"] is None else f" by {abs(evidence['improvement']):.2%}"
    if evidence["verdict"] == Verdict.EQUAL:
        return f"equal (within {evidence['equal_within']:.1%})"
    return f"this config is {evidence['verdict']}{share}"
