"""Decides what is found about a job, and says it: pure functions of plain values.

Nothing is said where nothing is wrong. A finding that chance explains is none: each says from which size on it counts.
"""

from __future__ import annotations

import math
import statistics

from search_spaces.edges import edges
from service.domain import Direction, FailureReason, Phase, TrialState
from service.evidence.caveats.general import AS_MUCH_TIME
from service.evidence.caveats.range_edges import options_beyond
from service.evidence.health.cards import HealthCard, HealthKind, SearchedJob, SearchedTrial, Severity
from service.evidence.in_words.wording import counted, duration, joined, number, optimizer_title, share, spread
from service.evidence.insights import SideInsights
from service.evidence.types import MIN_TRIED, ConfirmationResult, ConfirmedConfig

NOT_REPRODUCED = 0.05
"""Loss of a baseline's config with new seeds, as a share of the value that it was found with, that matters; the best of
many always loses a little."""
MANY_DIVERGED = 0.25
"""Share of a search's ended trials from which on the diverged ones are many."""
MAX_TOLD = 300
"""Characters of an error that a sentence quotes, by judgement."""
MIN_DIVERGED = 3
"""Trials, by judgement: of a short search, two may be chance."""
DROWNING = 0.5
"""Spread over seeds, as a share of the distance from the best to the median value of a search, beyond which luck
decides which config is the best."""
IMPROVING = 0.01
"""Gain of the best value, as a share of it, over the last quarter of a search, from which on it still improves."""
MIN_TRAJECTORY = 12
"""Trials of a search, of which fewer do not tell how it went on."""
TELLING = 0.3
"""Rank correlation of early values with the last ones, below which early ones tell next to nothing."""
BUSY = 0.5
"""Share of the time that trials trained, below which devices were idle."""
CLEARLY_BETTER = 0.9
"""Loss of another preset over that of the searched one on similar models, below which it is worth a try, by judgement:
over the 14 models of the table such a mean has a standard error of up to a tenth."""
MIN_ELAPSED_SECONDS = 120.0
"""A shorter job is mostly start."""
IN_A_CLONE = "In a clone of the job ('Edit and clone' on its page)"
"""The beginning of advice on fields that no job changes once it has been submitted."""


def health_of(job: SearchedJob) -> list[HealthCard]:
    """The findings, warnings first; none where nothing is wrong."""
    found = (
        _baseline_not_reproduced(job),
        _baseline_undertuned(job),
        _noisy_metric(job),
        _at_the_edge(job),
        _many_diverged(job),
        _early_values_mislead(job),
        _still_improving(job),
        _another_preset(job),
        _devices_idle(job),
    )
    cards = [card for card in found if card is not None]
    return sorted(cards, key=lambda card: card.severity is not Severity.WARNING)


def _baseline_not_reproduced(job: SearchedJob) -> HealthCard | None:
    evidence = job.evidence
    result = None if evidence is None else evidence.confirmation
    if evidence is None or result is None or evidence.baseline is None:
        return None
    config = next((own for own in result.configs if own.number == evidence.baseline.number), None)
    if config is None:
        return None
    whose = f"The best config of {optimizer_title(evidence.baseline.optimizer)} (trial {config.number})"
    if failed := [outcome for outcome in config.results if outcome.has_failed]:
        seeds = f"seed{'s' if len(failed) > 1 else ''} {', '.join(str(outcome.seed) for outcome in failed)}"
        told = f"{whose} failed when it was trained again, with {seeds}: {failed[0].ending}."
    elif _lost_share(config) > NOT_REPRODUCED and config.was_lucky(evidence.direction):
        told = (
            f"{whose} did not reproduce: found with {number(config.found_value)}, it has {number(config.mean)} with "
            f"{len(result.seeds)} new seeds."
        )
    else:
        return None
    return HealthCard(
        HealthKind.BASELINE_NOT_REPRODUCED,
        Severity.WARNING,
        told,
        f"The search may beat a weak baseline only. {IN_A_CLONE}, give the baseline more trials "
        "(baselines[].budget_share), and train more of its configs again (confirmation.top_k).",
    )


def _lost_share(config: ConfirmedConfig) -> float:
    if config.mean is None or not config.found_value:
        return 0.0
    return abs(config.mean - config.found_value) / abs(config.found_value)


def _baseline_undertuned(job: SearchedJob) -> HealthCard | None:
    evidence = job.evidence
    if evidence is None:
        return None
    told = []
    num_search, search_seconds = evidence.num_tried[Phase.SEARCH], evidence.side_seconds.get(Phase.SEARCH, 0.0)
    for best in evidence.baselines:
        whose, seconds = optimizer_title(best.optimizer), evidence.side_seconds.get(best.optimizer, 0.0)
        if best.number is None:
            told.append(f"no trial of {whose} completed")
        elif best.num_tried < MIN_TRIED:
            some = counted(best.num_tried, "trial")
            told.append(f"{whose} had {some} that did not fail, and so few hardly tune it")
        elif best.num_tried <= AS_MUCH_TIME * num_search and seconds <= AS_MUCH_TIME * search_seconds:
            told.append(
                f"{whose} had {best.num_tried} trials in {duration(seconds)} of training, the search {num_search} in "
                f"{duration(search_seconds)}"
            )
    if not told:
        return None
    return HealthCard(
        HealthKind.BASELINE_UNDERTUNED,
        Severity.WARNING,
        f"The baseline is under-tuned: {'; '.join(told)}.",
        f"{IN_A_CLONE}, give each side as much (baselines[].budget_share) and at least {MIN_TRIED} trials: to beat a "
        "baseline that was hardly tuned says little.",
    )


def _noisy_metric(job: SearchedJob) -> HealthCard | None:
    result = None if job.evidence is None else job.evidence.confirmation
    noise = None if result is None else seed_spread(result)
    values = _completed_values(job.of_search)
    if noise is None or len(values) < MIN_TRIED:
        return None
    best = min(values) if job.direction is Direction.MINIMIZE else max(values)
    distance = abs(statistics.median(values) - best)
    if noise <= DROWNING * distance:
        return None
    return HealthCard(
        HealthKind.NOISY_METRIC,
        Severity.WARNING,
        f"The metric is noisy: with another seed the same config differs by {spread(noise)}, and half of the search's "
        f"completed trials lie within {number(distance, 2)} of the best. Which of them is best is mostly luck.",
        "Measure on more data, train longer or average the weights; more seeds (confirmation.num_seeds) and more "
        "configs that are trained again (confirmation.top_k) tell configs apart.",
    )


def _at_the_edge(job: SearchedJob) -> HealthCard | None:
    told, commands = [], []
    for side, values in job.best_parameters.items():
        if len(job.of_search if side == Phase.SEARCH else job.of_baselines) < MIN_TRIED:
            continue  # which of so few is best is luck, and so is where it lies
        whose = "of the search" if side == Phase.SEARCH else f"of {optimizer_title(side)}"
        found = edges(job.spaces[side], values) if side in job.spaces else []
        named = [f"{edge.name} = {edge.value:.4g} by the {edge.side} bound {edge.bound:.4g}" for edge in found]
        if found:
            told.append(f"the best config {whose} has {', '.join(named)}")
            commands.append(f"shampoo-tuner try JOB {options_beyond(side, found)}")
    if not told:
        return None
    return HealthCard(
        HealthKind.AT_THE_EDGE,
        Severity.HINT,
        f"A best value lies at the edge of its range: {'; '.join(told)}.",
        "Better ones may lie beyond: try single values there, with 'Try a variation' on the page of a trial of that "
        f"side ({'; '.join(commands)}), or widen the range in the search space of a clone ('Edit and clone').",
    )


def _many_diverged(job: SearchedJob) -> HealthCard | None:
    trials = job.of_search
    diverged = [trial for trial in trials if trial.reason is FailureReason.DIVERGED]
    if len(diverged) < max(MIN_DIVERGED, MANY_DIVERGED * len(trials)):
        return None
    said = [
        f" One of them, trial {one.number}, said: {one.divergence[:MAX_TOLD]}." for one in diverged if one.divergence
    ]
    beyond = [] if job.insights is None else _diverged_beyond(job.insights)
    where = f" {' '.join(beyond)}" if beyond else ""
    narrow = "narrow these ranges" if beyond else "lower the upper bound of the learning rate"
    return HealthCard(
        HealthKind.MANY_DIVERGED,
        Severity.HINT,
        f"{len(diverged)} of the search's {len(trials)} trials diverged: their loss was not finite or above max_loss, "
        f"or another metric was not finite.{where}{''.join(said[-1:])}",
        f"Budget goes into configs that cannot work: {narrow} in the search space, allow a longer warm-up "
        "(schedule.warmup_fraction), or clip gradients (training.gradient_clip_norm).",
    )


def _diverged_beyond(insights: SideInsights) -> list[str]:
    """Says of which values trials diverged clearly more often, a sentence each."""
    told = []
    for parameter in insights.parameters:
        safe = parameter.safe_range
        for word, beyond in (
            ("below", None if safe is None else safe.diverged_below),
            ("from", None if safe is None else safe.diverged_above),
        ):
            if beyond is not None:
                where = f"{word} {beyond.value:.3g}{' on' if word == 'from' else ''}"
                told.append(f"With {parameter.label} {where}, {beyond.num_diverged} of {beyond.num_trials} did.")
    return told


def _early_values_mislead(job: SearchedJob) -> HealthCard | None:
    early = None if job.insights is None else job.insights.early_late_correlation
    if early is None or early.correlation >= TELLING:
        return None
    return HealthCard(
        HealthKind.EARLY_VALUES_MISLEAD,
        Severity.HINT,
        f"Early values do not tell late ones: after {early.share:.0%} of the training, the order of {early.num_trials} "
        f"completed trials agrees with the one in the end by a rank correlation of {early.correlation:.2f} "
        f"({early.low:.2f} to {early.high:.2f}; 1 is the same order).",
        "Pruning may have stopped good configs early: retry pruned trials, with 'Retry' beside each "
        f"(shampoo-tuner retry JOB NUMBER). {IN_A_CLONE}, prune later or not at all (pruner).",
    )


def _still_improving(job: SearchedJob) -> HealthCard | None:
    trials = [trial for trial in job.of_search if trial.state is not TrialState.FAILED]
    if not job.ended_by_budget or len(trials) < MIN_TRAJECTORY:
        return None
    before, late = trials[: 3 * len(trials) // 4], trials[3 * len(trials) // 4 :]
    early_values = _completed_values(before)
    best = None
    records = []
    for trial in [*before, *late]:
        value = trial.final_value
        if value is not None and (best is None or job.direction.is_better(value, than=best)):
            best = value
            records += [trial] if trial in late else []
    if not (early_values and records) or best is None:
        return None
    was = min(early_values) if job.direction is Direction.MINIMIZE else max(early_values)
    result = None if job.evidence is None else job.evidence.confirmation
    noise = None if result is None else seed_spread(result)
    gain = abs(best - was)
    if gain <= IMPROVING * abs(was) or (noise is not None and gain <= noise):
        return None
    found = f"trial{'s' if len(records) > 1 else ''} {joined(trial.number for trial in records)}"
    by = f", by {share(gain / was)}" if was else ""
    return HealthCard(
        HealthKind.STILL_IMPROVING,
        Severity.HINT,
        f"The budget ended while the search was still improving: {found}, of the last quarter of its trials, found "
        f"better values than all before{by}.",
        "Give it more trials, or time, with 'Change budget', and resume it (shampoo-tuner budget JOB num_trials=N "
        "--resume): it goes on with what it knows.",
    )


def _another_preset(job: SearchedJob) -> HealthCard | None:
    better = job.better_preset
    if better is None or better.loss_ratio > CLEARLY_BETTER:
        return None
    models = counted(better.num_models, "tuned model")
    return HealthCard(
        HealthKind.ANOTHER_PRESET,
        Severity.HINT,
        f"Another preset may suit the model better: on {models} near this one, the nearest {better.octaves:.1f} "
        f"octaves away, the best trials of {better.name} had {better.loss_ratio:.2f} times the loss of those of "
        f"{better.searched}, after equally many steps.",
        f"{IN_A_CLONE}, search that one (shampoo-tuner clone JOB search_space={better.name}).",
    )


def _devices_idle(job: SearchedJob) -> HealthCard | None:
    if job.elapsed_seconds < MIN_ELAPSED_SECONDS or not job.training_seconds:
        return None
    busy = job.training_seconds / (job.elapsed_seconds * job.parallel_trials)
    if busy >= BUSY:
        return None
    room = "one trial" if job.parallel_trials == 1 else f"{job.parallel_trials} trials at once"
    return HealthCard(
        HealthKind.DEVICES_IDLE,
        Severity.HINT,
        f"Devices were mostly idle: in {duration(job.elapsed_seconds)} with room for {room}, {busy:.0%} of the time "
        "went into training steps. The rest is evaluation, checkpoints, starts of ranks, and waiting for room.",
        "Measure less often (training.evaluate_every) where evaluation is long; where the job waits for room, ask for "
        "what the cluster has (resources).",
    )


def seed_spread(result: ConfirmationResult) -> float | None:
    """The standard deviation that another seed makes, over all configs that completed with several; None: none did."""
    variances = []
    for config in result.configs:
        values = [outcome.value for outcome in config.results if outcome.value is not None]
        if len(values) > 1:
            variances.append((len(values) - 1, statistics.variance(values)))
    if not variances:
        return None
    return math.sqrt(sum(num * variance for num, variance in variances) / sum(num for num, _ in variances))


def _completed_values(trials: list[SearchedTrial]) -> list[float]:
    return [value for trial in trials if (value := trial.final_value) is not None]
