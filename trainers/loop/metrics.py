"""Metrics of a measurement: validation, speed and memory of a trial, over all ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from trainers.config import TrialConfig
from trainers.memory.peak import peak_bytes, state_bytes
from trainers.ranks.context import RankContext, max_over_ranks, sum_over_ranks, synchronise_buffers
from trainers.trial import RunningTrial
from trainers.workload.description import LOOP_METRICS, MAX_METRIC_NAME, is_metric_name
from trainers.workload.protocol import HasRemarks, HasTokens, Workload
from trainers.workload.validation_metrics import metric_shares


def evaluate(workload: Workload, trial: RunningTrial, context: RankContext) -> Mapping[str, tuple[float, float]]:
    """This rank's share of the validation metrics.

    Raises:
        ValueError: the workload does not return such metrics.
    """
    model = trial.parallel.model
    synchronise_buffers(model, context)
    model.eval()
    with (
        torch.no_grad(),
        trial.evaluated_weights(),
        trial.parallel.for_evaluation() as whole,
        trial.precision.autocast(),
    ):
        shares = workload.evaluate(whole, rank=context.rank, world_size=context.world_size, device=context.device)
    return metric_shares(shares)


def over_ranks(
    numbers: tuple[float, float, float],
    shares: Mapping[str, tuple[float, float]],
    counts: Mapping[str, int],
    context: RankContext,
) -> tuple[list[float], dict[str, float], dict[str, float]]:
    """Means of the numbers, means of the metrics, and summed counts, by one collective.

    Raises:
        ValueError: a metric has an illegal name, or no weight, or a count has the name of a metric.
    """
    if doubled := counts.keys() & {*shares, *LOOP_METRICS}:
        raise ValueError(f"counts must not have the names of metrics, got {', '.join(sorted(doubled))}")
    for name in (*shares, *counts):
        if not is_metric_name(name):
            raise ValueError(
                f"a metric must have a name of 1 to {MAX_METRIC_NAME} printable characters, got {name!r:.80}"
            )
    names, counted = sorted(shares), sorted(counts)
    sums = sum_over_ranks(
        [*numbers, *(number for name in names for number in shares[name]), *(float(counts[name]) for name in counted)],
        context,
    )
    means = [total / context.world_size for total in sums[: len(numbers)]]
    parts = iter(sums[len(numbers) :])
    metrics: dict[str, float] = {}
    for name in names:
        total, weight = next(parts), next(parts)
        if weight <= 0:
            raise ValueError(f"metric {name!r} must have a weight > 0 over all ranks, got {weight}")
        metrics[name] = total / weight
    return means, metrics, dict(zip(counted, parts, strict=True))


def remarks_of(workload: Workload, config: TrialConfig) -> Sequence[str]:
    """The remarks on the data: that of the loop with this config, and the workload's."""
    found = workload.remarks() if isinstance(workload, HasRemarks) else ()
    if isinstance(found, str) or not all(isinstance(remark, str) for remark in found):
        raise ValueError(f"remarks must be a sequence of texts, got {found!r:.80}")
    num_examples = workload.num_train_examples
    if config.batch_size <= num_examples:
        return found
    return [
        f"a batch of {config.batch_size:,} has some of the {num_examples:,} training examples twice or more",
        *found,
    ]


def speed(workload: Workload, config: TrialConfig, *, num_steps: int, seconds: float) -> dict[str, float]:
    examples_per_second = num_steps * config.batch_size / seconds
    found = {"step_seconds": seconds / num_steps, "examples_per_second": examples_per_second}
    if isinstance(workload, HasTokens):
        found["tokens_per_second"] = examples_per_second * workload.tokens_per_example
    return found


def memory(trial: RunningTrial, context: RankContext) -> dict[str, float]:
    """Memory in bytes, of the rank that needs the most."""
    peak, state = max_over_ranks([peak_bytes(context.device), state_bytes(trial.optimizer)], context)
    return {"peak_memory_bytes": peak, "optimizer_state_bytes": state}
