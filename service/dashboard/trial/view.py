"""A trial's page as plain values: its config beside others, what it took, whom it belongs with. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from search_spaces import SearchSpace
from search_spaces.edges import edges
from search_spaces.parameters import Categorical, Parameter, is_same
from service.dashboard.cells import parameter as short
from service.dashboard.job.view import AdvicePlace
from service.domain import FailureReason
from service.evidence.in_words.wording import DASH, counted, mebibytes, seconds_words
from service.use_cases.estimating.estimates import EarlierStep
from service.use_cases.estimating.memory_estimates import PredictedMemory

Scale = Literal["linear", "log", "reverse_log", "choices"]
SCALES = {"log": "logarithmic", "reverse_log": "logarithmic in 1 - x", "linear": "linear", "choices": ""}


def advice_places(reason: FailureReason | None, job_id: str, *, may_clone: bool) -> list[AdvicePlace]:
    """The places that the advice on a trial leads to; none, if it did not fail.

    Args:
        may_clone: whether the reader may submit a job like its own.
    """
    match reason:
        case None:
            return []
        case FailureReason.ERROR | FailureReason.LOST | FailureReason.STORE_FAILED:
            return [AdvicePlace("What it printed", "#output-section")]
        case FailureReason.DIVERGED | FailureReason.INFEASIBLE | FailureReason.OUT_OF_MEMORY:
            alike = AdvicePlace("Failed trials", f"/jobs/{job_id}?state=failed#trials-section")
            form = AdvicePlace("Edit and clone the job", f"/jobs/new?clone={job_id}")
            return [alike, form] if may_clone else [alike]
    assert_never(reason)


@dataclass(frozen=True, slots=True)
class ParameterRow:
    """A hyperparameter of a trial, beside the best trial's and the default."""

    name: str
    value: Any
    """None, with `is_missing`: this trial does not have it."""
    best: Any
    default: Any
    is_missing: bool
    best_has_it: bool
    in_space: bool
    """False: nothing is known of its range."""
    range_words: str
    """`1e-05 to 0.1, logarithmic`, or the choices."""
    position: float | None
    """Position in the range on its scale, from 0 to 1; None: it has no order."""
    best_position: float | None
    default_position: float | None
    differs_from_best: bool
    differs_from_default: bool
    at_edge: str
    """`upper` or `lower`; empty: at none."""
    is_beyond: bool
    """True of a value beyond that edge, which somebody tried."""


def parameter_rows(
    parameters: Mapping[str, Any], best: Mapping[str, Any] | None, space: SearchSpace | None
) -> list[ParameterRow]:
    """A row for each parameter of a trial, and for those that the best trial has besides.

    Args:
        best: None: there is no best trial, or it is this one.
        space: that they were sampled from; None: it is not known any more.
    """
    own = {parameter.name: parameter for parameter in space.active(parameters)} if space is not None else {}
    of_best = {parameter.name: parameter for parameter in space.active(best or {})} if space is not None else {}
    at_edge = {edge.name: edge for edge in edges(space, parameters)} if space is not None else {}
    rows = []
    for name in dict.fromkeys([*parameters, *(best or {})]):
        declared = own.get(name) or of_best.get(name)
        value, is_missing = parameters.get(name), name not in parameters
        best_has_it = best is not None and name in best
        default = None if declared is None else declared.default
        edge = at_edge.get(name)
        rows.append(
            ParameterRow(
                name=name,
                value=value,
                best=None if best is None else best.get(name),
                default=default,
                is_missing=is_missing,
                best_has_it=best_has_it,
                in_space=declared is not None,
                range_words="" if declared is None else range_words(declared),
                position=None if is_missing else position(declared, value),
                best_position=position(declared, best[name]) if best is not None and name in best else None,
                default_position=position(declared, default),
                differs_from_best=best is not None
                and (is_missing or not best_has_it or not is_same(value, best.get(name))),
                differs_from_default=declared is not None and not is_missing and not is_same(value, default),
                at_edge="" if edge is None else edge.side,
                is_beyond=edge is not None and edge.is_beyond,
            )
        )
    return rows


def edge_words(rows: Sequence[ParameterRow]) -> list[str]:
    """Sentences on the values, but for defaults, at an end of their range or beyond, beside those of the best trial."""
    found = []
    for row in rows:
        if row.at_edge and row.differs_from_default:
            best = f"; the best trial has {short(row.best)}" if row.best_has_it and row.differs_from_best else ""
            where = f"{'beyond' if row.is_beyond else 'at'} the {row.at_edge} end of {row.range_words}"
            found.append(f"{row.name} = {short(row.value)} is {where}{best}.")
    return found


def range_words(parameter: Parameter) -> str:
    """The values that a parameter is searched among."""
    if isinstance(parameter, Categorical):
        return ", ".join(short(choice) for choice in parameter.choices)
    scale = f", {SCALES[parameter.scale]}" if parameter.scale != "linear" else ""
    return f"{short(parameter.low)} to {short(parameter.high)}{scale}"


def position(parameter: Parameter | None, value: Any) -> float | None:
    """The place of a value in its range, from 0 to 1; None: there is no range, or the value is no number."""
    if parameter is None or isinstance(parameter, Categorical):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(parameter.to_unit(value), 4)


@dataclass(frozen=True, slots=True)
class CostRow:
    """The cost of a trial in one respect, beside the cost of others."""

    title: str
    own: str
    typical: str
    """The median over completed trials of its side."""
    baseline: str
    """The median over completed trials of the best baseline."""
    limit: str
    """Empty: there is none, or it is not known."""


def cost_rows(
    own: Mapping[str, Any],
    side: Sequence[Mapping[str, Any]],
    baseline: Sequence[Mapping[str, Any]],
    *,
    memory_limit: float | None,
) -> list[CostRow]:
    """Memory and step time of a trial, as measured; empty: nothing was.

    Args:
        own: its last metrics.
        side: the last metrics of completed trials like it.
        baseline: the last metrics of the best baseline's completed trials.
        memory_limit: bytes that a rank may take.
    """
    rows = []
    for metric, title in (
        ("step_seconds", "A step"),
        ("peak_memory_bytes", "Memory of a rank, at most"),
        ("optimizer_state_bytes", "of it the optimizer's state"),
    ):
        if own.get(metric) is None:
            continue
        words = seconds_words if metric == "step_seconds" else _bytes_words
        is_peak = metric == "peak_memory_bytes"
        rows.append(
            CostRow(
                title,
                words(own[metric]),
                words(_median(side, metric)),
                words(_median(baseline, metric)),
                mebibytes(memory_limit) if is_peak and memory_limit is not None else "",
            )
        )
    return rows


@dataclass(frozen=True, slots=True)
class PredictionRow:
    """A cost of a trial as it was to be, beside what was measured."""

    title: str
    predicted: str
    measured: str
    basis: str
    """The ground of the prediction and what it leaves out, or why there is none."""
    earlier_job: str | None = None
    """The id of the job that it is told from."""


def prediction_rows(
    memory: PredictedMemory, earlier: EarlierStep | None, *, step_seconds: float | None, peak_bytes: float | None
) -> list[PredictionRow]:
    """Memory and step time as predicted.

    Args:
        earlier: what was known of a step before the job; None: nothing.
        step_seconds: as measured last; None: it was not.
        peak_bytes: likewise.
    """
    parts = {
        "weights, gradients and optimizer": memory.kept_bytes,
        "activations of a step": memory.activation_bytes,
    }
    known = {name: num_bytes for name, num_bytes in parts.items() if num_bytes is not None}
    basis = [f"{name} {mebibytes(num_bytes)}" for name, num_bytes in known.items()]
    basis += [] if memory.problem is None else [memory.problem]
    basis += ["libraries, data and the process itself come on top"] if known else []
    step_basis = (
        "no earlier job with such steps has completed a trial of this optimizer and batch size"
        if earlier is None
        else f"median of {counted(earlier.num_trials, 'trial')} of an earlier job"
    )
    return [
        PredictionRow(
            "Memory of a rank, at least",
            mebibytes(sum(known.values())) if known else DASH,
            _bytes_words(peak_bytes),
            "; ".join(basis),
        ),
        PredictionRow(
            "A step",
            seconds_words(None if earlier is None else earlier.step_seconds),
            seconds_words(step_seconds),
            step_basis,
            None if earlier is None else earlier.job_id,
        ),
    ]


def _median(measured: Sequence[Mapping[str, Any]], metric: str) -> float | None:
    values = [float(metrics[metric]) for metrics in measured if metrics.get(metric) is not None]
    return statistics.median(values) if values else None


def _bytes_words(num_bytes: float | None) -> str:
    return DASH if num_bytes is None else mebibytes(num_bytes)
