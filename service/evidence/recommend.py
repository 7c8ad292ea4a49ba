"""From finished trials to a recommended config and its evidence: pure functions of plain values."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from search_spaces import SearchSpace
from service.domain import Currency, Direction, Objective, Phase, Side, TrialState, side_of
from service.evidence.branches import Branches
from service.evidence.break_even import break_even_of
from service.evidence.caveats import general
from service.evidence.caveats.setbacks import setback_caveats
from service.evidence.compared import compare_sides, winner_by_value
from service.evidence.comparison.alternatives import alternatives_of
from service.evidence.comparison.confirm import split_seeds
from service.evidence.comparison.missed_target import has_no_share, is_open
from service.evidence.comparison.reached import reached_baseline
from service.evidence.finished_trial import FinishedTrial
from service.evidence.lineage import caveat_of_lineage
from service.evidence.luck.job_branches import branches_of
from service.evidence.luck.searched_side import SearchedSide
from service.evidence.parameter_groups import caveat, is_makeable, own_settings
from service.evidence.pareto_front import FrontPoint, front_of
from service.evidence.recommended import PasteableConfig, RecommendedConfig, status_of
from service.evidence.transfers import HeadStart, transfer_results
from service.evidence.types import (
    EQUAL_WITHIN,
    BaselineBest,
    ConfirmationResult,
    CurrencyComparison,
    Evidence,
    Verdict,
    Winner,
)
from trainers.stored_config import StoredConfig
from trainers.workload.description import ParameterGroup

_TRAINING = (
    "num_steps",
    "batch_size",
    "gradient_clip_norm",
    "accumulation_steps",
    "precision",
    "averaging",
    "compression",
)
"""The settings beside optimizer and schedule in a trial's config that change how its optimizer does."""


def recommend(
    trials: Sequence[FinishedTrial],
    *,
    objectives: Sequence[Objective],
    num_planned: int | None = None,
    seeds: Sequence[int] = (),
    top_k: int = 1,
    num_baselines: int = 1,
    parameter_groups: Sequence[ParameterGroup] = (),
    spaces: Mapping[Side, SearchSpace] | None = None,
    currency: Currency = Currency.STEPS,
    takes_equal_seconds: bool = False,
    head_start: HeadStart | None = None,
    num_ranks: int = 1,
) -> RecommendedConfig | None:
    """The best config of the search with its evidence; None if no search trial completed.

    Where configs were trained again with new seeds, those trials alone decide: which config is the best, how it
    compares with the best of the baselines (`confirm.compare_over_seeds`), and by how much. A config that failed with a
    new seed gives way to one that did not. Without, the best completed trial stands, provisionally.

    A search that lost to a baseline still gives its best config, with verdict `worse`. Where a side had fewer than
    `MIN_TRIED` trials, or both missed a target whose time is the objective, the verdict is `undecided`, whatever the
    seeds say.

    Args:
        trials: all of the job's.
        objectives: the first decides; with several, the evidence has the front of all of them.
        num_planned: trials of search and baselines that the job was to have; if fewer ran to an end of their own,
            because the time was up or the run failed, a caveat says so.
        seeds: new seeds of the job's confirmation, in its order; empty: the job was to confirm nothing.
        top_k: configs of each side that it was to confirm.
        num_baselines: sides beside the search that the job has.
        parameter_groups: those of the workload's description; a caveat says so where no rule tells which these are.
        spaces: those that the sides took their configs from; a caveat names values at the edge of a range. Without them
            nothing is said of the luck of the searches, nor of the probability that a config is the best.
        currency: what the verdict's two configs have spent equally much of; tokens, where none are counted, as
            examples.
        takes_equal_seconds: whether all trials were given the steps that take equally long.
        head_start: what the sides were given to begin with; a caveat says if a baseline had less than the search. None:
            nothing.
        num_ranks: ranks of a trial, each a device that the job took.
    """
    spaces, head_start = spaces or {}, head_start or HeadStart()
    metric, direction = objectives[0].metric, objectives[0].direction
    choosing, comparing = split_seeds(seeds, top_k=top_k, num_baselines=num_baselines)
    compared = compare_sides(
        trials,
        objectives[0],
        choosing=choosing,
        comparing=comparing,
        top_k=top_k,
        spaces=spaces,
        currency=currency,
        takes_equal_seconds=takes_equal_seconds,
    )
    if compared is None:
        return None
    best, baseline, result = compared.best, compared.baseline, compared.confirmation
    over_seeds, pairs, comparisons = compared.over_seeds, compared.pairs, compared.comparisons
    verdict, improvement = _verdict(baseline, comparisons)
    found = pasteable(best.stored_config, parameter_groups)
    side_seconds = _side_seconds(trials)
    front = _front(trials, objectives) if len(objectives) > 1 else []
    evidence = Evidence(
        metric=metric,
        direction=direction,
        best=best,
        baseline=baseline,
        verdict=verdict,
        equal_within=EQUAL_WITHIN,
        improvement=improvement,
        reached_baseline=None if has_no_share(pairs, metric) else reached_baseline(pairs, metric, direction),
        num_trials=_num_trials(trials),
        seeds=over_seeds.seeds if over_seeds else sorted({w.stored_config.seed for w in (best, baseline) if w}),
        caveats=[
            *([] if is_makeable(found.parameter_groups) else [caveat(found.parameter_groups)]),
            *([] if over_seeds or compared.has_failed else [general.of_one_seed(baseline)]),
            *(caveat_of_lineage(winner) for winner in (best, baseline) if winner is not None and winner.lineage),
            *general.of_edges(trials, best, baseline, spaces),
            *general.of_trials(trials, baseline, num_planned, side_seconds),
            *general.of_head_start(head_start),
            *general.of_options(spaces),
            *general.of_data(trials),
            *general.of_currency(currency, comparisons),
            *(general.of_unequal_time(pairs) if takes_equal_seconds else []),
            *(general.of_confirmation(result, len(comparing)) if seeds else []),
            *([] if front else general.of_no_front(objectives)),
        ],
        confirmation=result,
        front=front,
        verdict_caveats=[
            *general.of_target(trials, metric, [winner for winner in (best, baseline) if winner is not None]),
            *([] if result is None else setback_caveats(result, best, baseline, direction)),
        ],
        alternatives=[]
        if over_seeds is None
        else alternatives_of(over_seeds, trials, direction, space=spaces.get(Phase.SEARCH)),
        search_interval=compared.search_interval,
        currency=comparisons[0].currency if comparisons else currency,
        comparisons=comparisons,
        baselines=_baselines(trials, result, choosing, direction),
        side_seconds=side_seconds,
        transfers=transfer_results(head_start.moved, trials, direction),
        branches=_branches(trials, best, spaces, compared.searched, direction, metric),
    )
    if baseline is not None and (evidence.has_few_trials or is_open(pairs, metric)):
        evidence = _undecided(evidence)
    if has_no_share(pairs, metric):
        evidence = _without_share(evidence)
    spent_seconds = sum(trial.seconds for trial in trials)
    evidence = dataclasses.replace(
        evidence,
        status=status_of(evidence),
        break_even=break_even_of(evidence, spent_seconds=spent_seconds, num_ranks=num_ranks),
    )
    return RecommendedConfig(**{name: getattr(found, name) for name in PasteableConfig.model_fields}, evidence=evidence)


def pasteable(config: StoredConfig, parameter_groups: Sequence[ParameterGroup]) -> PasteableConfig:
    """The part of a whole trial config that another training script needs.

    Args:
        parameter_groups: those of the workload's description.
    """
    return PasteableConfig(
        workload=config.workload,
        optimizer=config.optimizer,
        config=dict(config.arguments),
        schedule=dict(config.schedule),
        training=config.training(*_TRAINING),
        workload_options=dict(config.workload_options),
        parameter_groups=own_settings(
            parameter_groups,
            optimizer=config.optimizer,
            arguments=config.arguments,
            options=config.workload_options,
        ),
    )


def _front(trials: Sequence[FinishedTrial], objectives: Sequence[Objective]) -> list[FrontPoint]:
    return front_of(
        [
            (trial.number, trial.phase, trial.curve[-1][2])
            for trial in trials
            if trial.state is TrialState.COMPLETED and trial.curve
        ],
        objectives,
    )


def _baselines(
    trials: Sequence[FinishedTrial], result: ConfirmationResult | None, choosing: Sequence[int], direction: Direction
) -> list[BaselineBest]:
    """The best of each baseline: by the seeds that chose where there were any, else by the values found."""
    own = [trial for trial in trials if trial.phase is Phase.BASELINE]
    rivals = result.configs[len(result.candidates) :] if result is not None else []
    found = []
    for optimizer in dict.fromkeys(trial.optimizer for trial in own):
        tried = [trial for trial in own if trial.optimizer == optimizer]
        numbers = {trial.number for trial in tried}
        chosen = next((c for c in rivals if c.number in numbers and c.choosing_mean is not None), None)
        best = winner_by_value(tried, Phase.BASELINE, direction)
        num_tried = sum(trial.state in (TrialState.COMPLETED, TrialState.PRUNED) for trial in tried)
        if chosen is not None:
            found.append(BaselineBest(optimizer, chosen.number, chosen.choosing_mean, len(choosing), num_tried))
        elif best is not None:
            found.append(BaselineBest(optimizer, best.number, best.value, 0, num_tried))
        else:
            found.append(BaselineBest(optimizer, None, None, 0, num_tried))
    return found


def _side_seconds(trials: Sequence[FinishedTrial]) -> dict[Side, float]:
    """Training seconds of each side, in the order in which they began; the confirmation is nobody's."""
    seconds: dict[Side, float] = {}
    for trial in trials:
        if trial.confirms is None:
            side = side_of(trial.phase, trial.optimizer)
            seconds[side] = seconds.get(side, 0.0) + trial.seconds
    return seconds


def _branches(
    trials: Sequence[FinishedTrial],
    best: Winner,
    spaces: Mapping[Side, SearchSpace],
    side: SearchedSide | None,
    direction: Direction,
    metric: str,
) -> Branches | None:
    space = spaces.get(Phase.SEARCH)
    return None if space is None else branches_of(trials, best.number, space, side, direction, metric=metric)


def _verdict(baseline: Winner | None, comparisons: Sequence[CurrencyComparison]) -> tuple[Verdict, float | None]:
    """The verdict and the improvement that it speaks of."""
    if baseline is None:
        return Verdict.NO_BASELINE, None
    if not comparisons:
        return Verdict.UNDECIDED, None
    return comparisons[0].verdict, comparisons[0].improvement


def _undecided(evidence: Evidence) -> Evidence:
    """The evidence with no verdict, whatever the values say."""
    comparisons = [dataclasses.replace(each, verdict=Verdict.UNDECIDED) for each in evidence.comparisons]
    return dataclasses.replace(evidence, verdict=Verdict.UNDECIDED, comparisons=comparisons)


def _without_share(evidence: Evidence) -> Evidence:
    """The evidence of trials that missed their target: without a share of the baseline's value, nor an interval."""
    result = evidence.confirmation
    return dataclasses.replace(
        evidence,
        improvement=None,
        confirmation=result and dataclasses.replace(result, improvement_low=None, improvement_high=None),
        comparisons=[
            dataclasses.replace(each, improvement=None, improvement_low=None, improvement_high=None)
            for each in evidence.comparisons
        ],
        search_interval=None,
    )


def _num_trials(trials: Sequence[FinishedTrial]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for trial in trials:
        counts.setdefault(trial.phase.value, Counter())[str(trial.ending)] += 1
    return {phase: dict(sorted(endings.items())) for phase, endings in sorted(counts.items())}
