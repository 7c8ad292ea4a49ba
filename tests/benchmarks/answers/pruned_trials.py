"""How much better tuned models answer together if the trials that their jobs pruned have a say.

    python -m tests.benchmarks.answers.pruned_trials  # minutes

Two digits MLPs of other widths than the shipped table's are each searched by `auto`, which prunes most of the trials.
They answer together with the table's members of other data, for the table's MLPs, once as the service has them and once
without what was pruned. The answers are trained with the same new seeds:

- `loss_ratio`: the loss with the pruned trials over that without them, the geometric mean over the seeds;
- `with_over_without_loss`: the geometric mean of these over targets and searches; `noise`: its standard error, as a
  factor.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from search_spaces import Scalar, preset
from service.domain import Direction, FailureReason, TrialState
from service.scheduler.policy.pooled_trials import pooled_answer, shipped_hyperparameters
from service.scheduler.policy.protocol import Decision
from service.scheduler.policy.searching.auto import AutoSearch
from service.scheduler.policy.searching.phase_search import New, TrialOutcome
from service.specification.search.pauses import first_pause
from service.transfer.candidates import (
    EarlyValue,
    Source,
    SourceKind,
    TransferCandidate,
    TunedTrial,
    shipped_members,
)
from service.transfer.pooled import PoolMember
from service.transfer.ranking import together, transferred
from service.transfer.rules import TunedConfig
from service.transfer.situation import Situation, distance
from shampoo.step.failures import RefreshFailed
from tests.benchmarks.answers.transfer import loss_ratio, trained
from tests.benchmarks.report import Cell, report
from tests.benchmarks.search.make_knowledge import MEMBERS, OBJECTIVE, Member, outcome
from trainers.config import Diverged, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context

WORKLOAD = "digits-mlp"
TUNED = (
    Member("mlp-64", WORKLOAD, 64, 200, {"width": 64}),
    Member("mlp-128", WORKLOAD, 64, 200, {"width": 128}),
)
"""The models that jobs tuned."""
PRESET = "shampoo"
NUM_UNITS = 20
"""Measurements of a trial."""

Curve = Sequence[tuple[int, float]]


def curve_of(config: TrialConfig) -> Curve:
    """Steps and values of a whole training; shorter if it diverged."""
    every = config.num_steps // NUM_UNITS
    found: list[tuple[int, float]] = []
    measured = train(dataclasses.replace(config, evaluate_every=every), single_process_context())
    with contextlib.suppress(Diverged, RefreshFailed):
        found.extend((one.step, one.metrics[OBJECTIVE]) for one in measured)
    return found


def searched(member: Member, *, num_trials: int, seed: int) -> list[TunedTrial]:
    """The trials of a search of a model, in the order in which they began."""
    search = AutoSearch(preset(PRESET), direction=Direction.MINIMIZE, max_steps=member.num_steps, seed=seed)
    parameters: list[Mapping[str, Scalar]] = []
    curves: list[Curve] = []
    reached: list[int] = []
    """Measurements that each has reported."""
    has_ended = set[int]()
    while (chosen := search.choose(len(curves), may_start=len(curves) < num_trials)) is not None:
        if isinstance(chosen, New):
            number = len(curves)
            parameters.append(chosen.parameters)
            curves.append(curve_of(member.config(chosen.parameters)))
            reached.append(0)
        else:
            number = chosen.number
        while reached[number] < len(curves[number]):
            step, value = curves[number][reached[number]]
            reached[number] += 1
            if search.report(number, step, value) is Decision.PAUSE:
                break
        else:
            ended = curves[number][-1:]
            is_whole = bool(ended) and ended[0][0] == member.num_steps
            diverged = TrialOutcome(TrialState.FAILED, FailureReason.DIVERGED, (), ())
            search.finish(number, outcome(ended[0][1], member.num_steps) if is_whole else diverged)
            has_ended.add(number)
    return [
        tuned_trial(member, values, curves[number][: reached[number]], was_stopped=number not in has_ended)
        for number, values in enumerate(parameters)
    ]


def tuned_trial(member: Member, parameters: Mapping[str, Scalar], seen: Curve, *, was_stopped: bool) -> TunedTrial:
    """A trial as the service reads it, from what it measured."""
    if was_stopped:
        return TunedTrial(None, parameters, EarlyValue(*seen[-1]), was_stopped=True)
    first = first_pause(member.num_steps)
    early = next((EarlyValue(*point) for point in seen if first <= point[0] < member.num_steps), None)
    value = seen[-1][1] if seen and seen[-1][0] == member.num_steps else None
    return TunedTrial(value, parameters, early)


def best_of(member: PoolMember) -> TransferCandidate:
    """The config that a job recommends: that of its best trial."""
    best = min((one.value, place) for place, one in enumerate(member.trials) if one.value is not None)
    assigned = preset(PRESET).assign(dict(member.trials[best[1]].parameters))
    return TransferCandidate(
        TunedConfig(assigned.optimizer, assigned.optimizer_arguments, {"decay": "cosine", **assigned.schedule}),
        Source(SourceKind.STORE, member.name, job_id=member.job_id),
        member.situation,
    )


def answered(others: Sequence[PoolMember], own: Sequence[PoolMember], target: Situation) -> TunedConfig:
    """The config that models say together, with the decay of the nearest job, moved."""
    pooled = pooled_answer([*others, *own], target, hyperparameters=shipped_hyperparameters(PRESET))
    nearest_first = sorted(own, key=lambda one: distance(one.situation, target).total)
    candidates = map(best_of, nearest_first)
    return together(pooled, [transferred(one.config, one, target) for one in candidates]).config


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=3, help="searches of each tuned model")
    parser.add_argument("--first-search", type=int, default=1, help="the seed of the first; the others follow it")
    parser.add_argument("--num-trials", type=int, default=20, help="trials of each search")
    parser.add_argument("--seeds", type=int, default=4, help="seeds with which the answers are trained")
    parser.add_argument("--json", type=Path, help="file for the result")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = [member for member in shipped_members() if member.preset == PRESET]
    of_other_data = [PoolMember.of(member) for member in table if member.workload != WORKLOAD]
    made = {member.name: member for member in MEMBERS}
    rows: list[list[Cell]] = []
    ratios: list[float] = []
    for seed in range(given.first_search, given.first_search + given.searches):
        tuned = []
        for member in TUNED:
            trials = tuple(searched(member, num_trials=given.num_trials, seed=seed))
            situation = Situation.of(
                member.shape, batch_size=member.batch_size, num_steps=member.num_steps, workload=WORKLOAD
            )
            tuned.append(PoolMember(member.name, PRESET, situation, trials, job_id=member.name))
        whole = [
            dataclasses.replace(
                member,
                trials=tuple(dataclasses.replace(one, early=None) for one in member.trials if not one.was_stopped),
            )
            for member in tuned
        ]
        num_pruned = sum(one.was_stopped for member in tuned for one in member.trials)
        for target in (member for member in table if member.workload == WORKLOAD):
            answers = [answered(of_other_data, own, target.situation) for own in (tuned, whole)]
            losses = [trained(made[target.name], answer, num_seeds=given.seeds) for answer in answers]
            ratios.append(loss_ratio(*losses))
            rates = [float(answer.arguments["lr"]) for answer in answers]
            rows.append([seed, num_pruned, target.name, *rates, ratios[-1]])
            print(*rows[-1], flush=True)
    logarithms = [math.log(ratio) for ratio in ratios]
    figures = {"loss_ratios": ratios, "noise": math.exp(statistics.stdev(logarithms) / math.sqrt(len(ratios)))}
    report(
        "pruned_trials",
        columns=["search", "pruned", "target", "lr with pruned", "lr without", "loss ratio"],
        rows=rows,
        figures=figures,
        ratios={"with_over_without_loss": statistics.geometric_mean(ratios)},
        json_file=given.json,
    )


if __name__ == "__main__":
    main()
