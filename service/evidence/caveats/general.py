"""Caveats of trials, sides, seeds, data and the target: pure functions of plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from search_spaces import SearchSpace
from search_spaces.parameters import sectioned
from service.domain import Currency, Objective, Phase, Side, TrialState, side_of
from service.evidence.caveat_kinds import Caveat, CaveatKind
from service.evidence.caveats.range_edges import edge_caveats
from service.evidence.comparison.missed_target import TIMES_TO_TARGET, has_missed
from service.evidence.finished_trial import FinishedTrial, Pair
from service.evidence.in_words.wording import counted, optimizer_title
from service.evidence.transfers import HeadStart
from service.evidence.types import MIN_TRIED, ConfirmationResult, CurrencyComparison, Winner

AS_MUCH_TIME = 0.9
"""Share of the search's seconds from which a baseline had as much: where sides share time, they differ by a trial."""
EQUAL_TIME_WITHIN = 1.1
"""Ratio of times up to which trials that were to take equally long did."""


def of_one_seed(baseline: Winner | None) -> Caveat:
    """The caveat on winners that were trained once."""
    which, found = ("the winner", "its value") if baseline is None else ("both winners", "the difference")
    return Caveat(
        CaveatKind.ONE_SEED,
        "The values are those of the search, of one seed each, and the best of many is partly luck: "
        f"repeat {which} with fresh seeds before relying on {found}. A clone of the job with a confirmation, which all "
        "pruners but `pbt` can have, does that after a search of its own: 'Edit and clone' on the job's page, or "
        "`shampoo-tuner clone JOB --set confirmation.num_seeds=7`.",
    )


def of_edges(
    trials: Sequence[FinishedTrial], best: Winner, baseline: Winner | None, spaces: Mapping[Side, SearchSpace]
) -> list[Caveat]:
    """Caveats on winners with values at the edge of their ranges, as far as the sides' spaces are known.

    Only of sides with `MIN_TRIED` trials: which of fewer is best is luck, and so is where its values lie.
    """
    tried = Counter(
        side_of(trial.phase, trial.optimizer)
        for trial in trials
        if trial.confirms is None and trial.state in (TrialState.COMPLETED, TrialState.PRUNED)
    )
    values = {trial.number: trial.parameters for trial in trials}
    winners = {Phase.SEARCH.value: best} | ({} if baseline is None else {baseline.optimizer: baseline})
    return [
        caveat
        for side, winner in winners.items()
        if side in spaces and tried[side] >= MIN_TRIED
        for caveat in edge_caveats(side, spaces[side], values[winner.number], trial=winner.number)
    ]


def of_trials(
    trials: Sequence[FinishedTrial],
    baseline: Winner | None,
    num_planned: int | None,
    seconds: Mapping[Side, float],
) -> list[Caveat]:
    """Caveats on a job that ended early, has no baseline, or gave one less than the search. A trial that was cancelled,
    as one that a user has stopped, gave its side nothing.

    Args:
        num_planned: trials of search and baselines that the job was to have; None: unknown.
        seconds: training time of each side.
    """
    caveats: list[Caveat] = []
    found = [trial for trial in trials if trial.confirms is None]
    ended = [trial for trial in found if trial.state is not TrialState.CANCELLED]
    if num_planned is not None and len(ended) < num_planned:
        told = f"The job ended early, after {len(ended)} of {num_planned} trials."
        caveats.append(Caveat(CaveatKind.ENDED_EARLY, told))
    of_baselines = Counter(trial.optimizer for trial in ended if trial.phase is Phase.BASELINE)
    num_search = sum(trial.phase is Phase.SEARCH for trial in ended)
    if baseline is None:
        why = "none of its trials completed" if of_baselines else "no trial of one was trained"
        caveats.append(Caveat(CaveatKind.NO_BASELINE, f"There is no baseline to compare with: {why}."))
        return caveats
    for optimizer, num in of_baselines.items():
        if num < num_search and seconds[optimizer] <= AS_MUCH_TIME * seconds[Phase.SEARCH]:
            whose = "the baseline" if len(of_baselines) == 1 else f"the baseline {optimizer_title(optimizer)}"
            told = f"The search had {counted(num_search, 'trial')} and {whose} {num}, which favours the search."
            caveats.append(Caveat(CaveatKind.UNEQUAL_TRIALS, told))
    return caveats


def of_head_start(given: HeadStart) -> list[Caveat]:
    """Caveats if the search was given more to begin with than a baseline: configs of other models, or other configs."""
    caveats = []
    num_moved, fewest = len(given.moved), min(given.baselines_moved, default=len(given.moved))
    if fewest < num_moved:
        began = "1 config that was" if num_moved == 1 else f"{num_moved} configs that were"
        whose = f"{began} tuned for other models and the baseline with {fewest or 'none'}"
        told = f"The search began with {whose}, which favours the search."
        caveats.append(Caveat(CaveatKind.UNEQUAL_START, told))
    num_given = given.num_pinned + given.num_imported
    fewest = min(given.baselines_pinned, default=num_given)
    if fewest < num_given:
        imported = f" and {counted(given.num_imported, 'trial')} of other studies" if given.num_imported else ""
        pinned = "1 pinned entry" if given.num_pinned == 1 else f"{given.num_pinned or 'no'} pinned entries"
        told = f"The search was given {pinned}{imported} and the baseline {fewest or 'none'}, which favours the search."
        caveats.append(Caveat(CaveatKind.UNEQUAL_START, told))
    return caveats


def of_target(trials: Sequence[FinishedTrial], metric: str, winners: Sequence[Winner]) -> list[Caveat]:
    """Caveats on winners that missed the target, with a new seed or, where there was none, when they were found."""
    caveats = []
    for winner in winners if metric in TIMES_TO_TARGET else ():
        repeated = [trial for trial in trials if trial.confirms == winner.number]
        own = repeated or [trial for trial in trials if trial.number == winner.number]
        ended = [trial for trial in own if trial.state is TrialState.COMPLETED]
        num_missed = sum(map(has_missed, ended))
        if num_missed:
            told = (
                f"The config of trial {winner.number} missed the target in {num_missed} of "
                f"{counted(len(ended), 'training')}: there {metric} says how far off it stayed, so that no mean, share "
                "or interval of it is one of times."
            )
            caveats.append(Caveat(CaveatKind.MISSED_TARGET, told, winner.number))
    return caveats


def of_options(spaces: Mapping[Side, SearchSpace]) -> list[Caveat]:
    """Caveats on options of the workload that the search varied and a baseline did not."""
    varied = _options(spaces[Phase.SEARCH]) if Phase.SEARCH in spaces else set()
    lacking = {side: sorted(varied - _options(space)) for side, space in spaces.items() if side != Phase.SEARCH}
    return [
        Caveat(
            CaveatKind.UNEQUAL_OPTIONS,
            f"The search chose {', '.join(names)}, and {optimizer_title(side)} had what the job gave it: the two may "
            "have trained different models.",
        )
        for side, names in lacking.items()
        if names
    ]


def _options(space: SearchSpace) -> set[str]:
    """The options of the workload that a space sets, as `workload.<option>`."""
    names = (*(parameter.name for parameter in space.parameters), *space.fixed)
    return {name for name in names if sectioned(name)[0] == "workload"}


def of_data(trials: Sequence[FinishedTrial]) -> list[Caveat]:
    """The remarks on the data, of the newest of the trials that made any: all have the same data."""
    remarked = max((trial for trial in trials if trial.remarks), key=lambda trial: trial.number, default=None)
    if remarked is None:
        return []
    told = f"Of its data, trial {remarked.number} remarked: {remarked.remarks}."
    return [Caveat(CaveatKind.DATA, told, remarked.number)]


def of_confirmation(result: ConfirmationResult | None, num_seeds: int) -> list[Caveat]:
    """Caveats on a confirmation of `num_seeds` seeds."""
    if result is None:
        told = "No config was trained again with new seeds: the job ended before."
        return [Caveat(CaveatKind.NOT_CONFIRMED, told)]
    caveats = [
        Caveat(
            CaveatKind.FAILED_WITH_A_SEED,
            f"The config of trial {config.number} failed with seed "
            f"{', '.join(str(failed.seed) for failed in failures)}: {failures[0].ending}.",
            failures[0].number,
        )
        for config in result.configs
        if (failures := [outcome for outcome in config.results if outcome.has_failed])
    ]
    chosen = [*result.candidates[:1], *([] if result.baseline is None else [result.baseline])]
    values = [{own.value for own in config.results if own.value is not None} for config in chosen]
    if chosen and all(config.mean is not None for config in chosen) and all(len(own) == 1 for own in values):
        told = (
            "Every new seed gave the very same value: if the training does not follow the seed, they are one training "
            "and say nothing of its luck."
        )
        caveats.append(Caveat(CaveatKind.SEEDS_ALIKE, told))
    if result.is_settled:
        told = (
            f"The comparison stopped after {len(result.seeds)} of {num_seeds} seeds: they contradict each other so "
            "much that the others could not have told the configs apart."
        )
        caveats.append(Caveat(CaveatKind.STOPPED_COMPARING, told))
    elif len(result.seeds) < num_seeds and any(not config.has_failed for config in result.configs):
        told = f"The confirmation did not finish: {len(result.seeds)} of {num_seeds} seeds were compared."
        caveats.append(Caveat(CaveatKind.NOT_CONFIRMED, told))
    return caveats


def of_no_front(objectives: Sequence[Objective]) -> list[Caveat]:
    """A caveat where no trial measured all further objectives; the first one was measured, as there is a best trial."""
    others = " and ".join(objective.metric for objective in objectives[1:])
    told = f"No completed trial measured {others} as a number."
    return [Caveat(CaveatKind.NO_FRONT, told)] if others else []


def of_currency(asked: Currency, comparisons: Sequence[CurrencyComparison]) -> list[Caveat]:
    """A caveat where the verdict is by another currency than the one asked for."""
    if not comparisons or comparisons[0].currency is asked:
        return []
    told = f"The workload counts no {asked}: the verdict is by {comparisons[0].currency}."
    return [Caveat(CaveatKind.OTHER_CURRENCY, told)]


def of_unequal_time(pairs: Sequence[Pair]) -> list[Caveat]:
    """A caveat where trials that were to take equally long did not."""
    seconds = [[trial.curve[-1][1] for trial in pair if trial.curve] for pair in pairs]
    if not seconds or any(len(of_pair) < 2 or min(of_pair) <= 0 for of_pair in seconds):
        return []
    ratio = sum(ours for ours, _ in seconds) / sum(theirs for _, theirs in seconds)
    if max(ratio, 1 / ratio) <= EQUAL_TIME_WITHIN:
        return []
    told = (
        f"The recommended config's trainings took {ratio:.2f} times as long as those of the baseline's best, and were "
        "to take equally long by the times of a step that were measured first: the machines did other work, some steps "
        "became slower, or the trainings are so short that their first steps weigh."
    )
    return [Caveat(CaveatKind.UNEQUAL_TIME, told)]
