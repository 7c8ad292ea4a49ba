"""The config for a model that was never tuned, from all trials of several tuned models together.

Each trial is moved to that model by the scaling rules (`service.transfer.rules`), and its objective is scaled by the
trials of its own model. One statistical model (`searching.curve_model`) is fitted to all of them; the farther away a
trial was measured, the more noise it is assumed to have. The answer is the config with the best expected value.

    python -m service.scheduler.policy.pooled_trials < QUESTION

prints the answers to a question (`PoolQuestion.to_text`), as `PooledAnswers.to_json`. The API, which does not load
NumPy, uses this command (`service.use_cases.untuned.asking`).
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from search_spaces import Scalar, SearchSpace, preset
from search_spaces.fitting import fit
from service.evidence.in_words.wording import joined
from service.scheduler.policy.searching.curve_model import KNOWN_LENGTHS, CurveModel, Posterior, Rows
from service.scheduler.policy.searching.encoding import Array, Encoding
from service.scheduler.policy.searching.rungs import Rungs
from service.scheduler.policy.searching.scaling import Scale
from service.transfer.candidates import MemberShare, TunedTrial
from service.transfer.pooled import PooledAnswer, PooledAnswers, PoolMember, PoolQuestion, added_noise
from service.transfer.promise import compared_presets
from service.transfer.rules import TunedConfig, moved
from service.transfer.situation import Situation, distance
from trainers.workloads.messages import answer_to_line

HYPERPARAMETERS = Path(__file__).with_name("pooled_trials.json")
"""The hyperparameters of the models of the shipped table's trials, by preset, which are used for the trials of jobs,
too: a fit takes four times as long as an answer. Made by `python -m tests.benchmarks.answers.fit_pooled`."""
MOVED_TO_OTHER_DATA = ("lr", "weight_decay")
"""The parameters that rules move between models with different data and loss. Averages, warm-up, epsilon and refresh
period stay as they were tuned, by judgement: their rules are about another batch size or length of the same
training."""
NUM_FITS = 4
"""Number of fits: each continues where the previous one ended, until nothing changes."""
NUM_UNIFORM = 3000
"""Candidates drawn uniformly."""
NUM_LEADERS = 20
"""The number of best candidates around which others are drawn."""
NUM_AROUND = 60
"""Candidates around each of them, in each round."""
SPREADS = (0.1, 0.05, 0.02, 0.01, 0.01)
"""Standard deviations of the rounds, as shares of the ranges. All four by judgement: larger numbers found nothing
better."""


@dataclass(frozen=True, slots=True)
class _Trials:
    """The trials of all members, moved to a target."""

    vectors: Array
    """(n, dimensions) snapped."""
    rows: Rows
    added_noise: Array
    """(n,)"""
    member: np.ndarray[Any, np.dtype[np.int64]]
    """(n,) the position of each trial's member among all."""


def pooled_answer(
    members: Sequence[PoolMember], target: Situation, *, hyperparameters: Sequence[float]
) -> PooledAnswer:
    """The answer of tuned models of one preset.

    Args:
        hyperparameters: those of the model, as returned by `fitted`.
    """
    preset_name = members[0].preset
    space = preset(preset_name)
    encoding = Encoding(space)
    trials = _moved_trials(members, target, space, encoding)
    model = CurveModel(encoding, KNOWN_LENGTHS, hyperparameters=hyperparameters)
    posterior = model.condition(trials.vectors, trials.rows, added_noise=trials.added_noise)
    best = _best(posterior, encoding, trials.vectors)
    weights = np.bincount(trials.member, np.abs(posterior.weights(best)), len(members))
    shares = [
        MemberShare(member.name, float(weight), member.job_id)
        for member, weight in zip(members, weights / weights.sum(), strict=True)
    ]
    return PooledAnswer(
        preset_name,
        encoding.decode(best),
        len(trials.vectors),
        tuple(sorted(shares, key=lambda one: -one.share)),
    )


def fitted(members: Sequence[PoolMember]) -> list[float]:
    """The hyperparameters that explain the trials of tuned models of one preset best, with a separate function for each
    model.

    With one function for all, differences between the models would look like noise of each trial, and a model's own
    trials would hardly count.
    """
    space = preset(members[0].preset)
    encoding = Encoding(space)
    model = CurveModel(encoding, KNOWN_LENGTHS)
    searches = [_moved_trials([member], member.situation, space, encoding) for member in members]
    for _ in range(NUM_FITS):
        model.fit_together([(trials.vectors, trials.rows) for trials in searches])
    return model.hyperparameters


def answers(question: PoolQuestion) -> PooledAnswers:
    """The answers of all presets that are asked for and of which at least two models were tuned: first those in which
    a project's own jobs have a say, and then the ones that promise most."""
    asked = {name: members for name in question.presets if len(members := question.members(name)) > 1}
    compared = compared_presets([one for members in asked.values() for one in members], question.target)
    best_first = [] if compared is None else [one.preset for one in compared.presets]

    def place(name: str) -> tuple[bool, int]:
        is_of_table = all(member.job_id is None for member in asked[name])
        return is_of_table, best_first.index(name) if name in best_first else len(best_first)

    found = [
        pooled_answer(asked[name], question.target, hyperparameters=shipped_hyperparameters(name))
        for name in sorted(asked, key=place)
    ]
    if best_first and found[0].preset == best_first[0]:
        others = joined(best_first[1:])
        found[0] = dataclasses.replace(
            found[0],
            remarks=(
                f"on tuned models near this one the best trials of {best_first[0]} were better, at equal steps, "
                f"than those of {others}, in this order",
            ),
        )
    return PooledAnswers(tuple(found))


def shipped_hyperparameters(preset_name: str) -> list[float]:
    """The hyperparameters of the model of the shipped table's trials of a preset."""
    found: list[float] = json.loads(HYPERPARAMETERS.read_text())[preset_name]
    return found


def _moved_trials(members: Sequence[PoolMember], target: Situation, space: SearchSpace, encoding: Encoding) -> _Trials:
    vectors, distances, targets, noise, places = [], [], [], [], []
    for place, member in enumerate(members):
        octaves, own = distance(member.situation, target).total, _rows_of(member)
        vectors += [encoding.encode(_moved(member, trial, target, space)) for trial in member.trials]
        distances.append(own.distance)
        targets.append(own.target)
        noise += [added_noise(octaves)] * len(own.target)
        places += [place] * len(own.target)
    rows = Rows(np.arange(len(vectors)), np.concatenate(distances), np.concatenate(targets))
    return _Trials(encoding.snap(np.array(vectors)), rows, np.array(noise), np.array(places))


def _rows_of(member: PoolMember) -> Rows:
    """The last value of each trial of a tuned model, on a scale where final values have mean 0 and deviation 1.

    The final value of a pruned trial is assumed to differ from its last value as much as those of the others do, on
    average and in proportion to the distance. It has more noise. But without pruned trials, the trials that the search
    thought best would look as different from each other as the good and bad ones of another model.
    """
    rungs = Rungs(max_steps=member.situation.num_steps, first=None, pauses=True)
    trials = member.trials
    distances = np.array([0.0 if one.early is None else rungs.distance(one.early.step) for one in trials])
    early = np.array([math.nan if one.early is None else one.early.value for one in trials])
    ends = np.array([math.nan if one.value is None else one.value for one in trials])
    was_stopped = np.array([one.was_stopped for one in trials])
    values = np.where(was_stopped, early, ends)
    shows_change = np.isfinite(ends) & np.isfinite(early) & was_stopped.any()
    scale = Scale(np.concatenate([values, early[shows_change]]), is_minimised=member.is_minimised)
    targets, left = scale(values), np.where(was_stopped, distances, 0.0)
    if shows_change.any():
        changes = (targets[shows_change] - scale(early[shows_change])) / distances[shows_change]
        targets = targets + left * changes.mean()
    return Rows(np.arange(len(trials)), left, (targets - targets.mean()) / (targets.std() or 1.0))


def _moved(member: PoolMember, trial: TunedTrial, target: Situation, space: SearchSpace) -> dict[str, Scalar]:
    """A trial's parameters, moved, inside the ranges of the space."""
    assigned = space.assign(trial.parameters)
    config, _ = moved(
        TunedConfig(assigned.optimizer, assigned.optimizer_arguments, assigned.schedule), member.situation, target
    )
    values: dict[str, Scalar] = {name: config.flat[name] for name in trial.parameters}
    if distance(member.situation, target).workload:
        values |= {name: value for name, value in trial.parameters.items() if name not in MOVED_TO_OTHER_DATA}
    found = fit(space, values)
    assert found is not None, "a config of the space stays one"
    return found[0]


def _best(posterior: Posterior, encoding: Encoding, vectors: Array) -> Array:
    """The snapped vector for which a random search finds the largest expected value; the same each time."""
    rng = np.random.default_rng(0)
    drawn = rng.random((NUM_UNIFORM, encoding.num_dimensions))
    candidates = np.concatenate([vectors, encoding.snap(drawn)])
    expected = posterior.expected(candidates)
    for spread in SPREADS:
        leaders = candidates[np.argsort(-expected)[:NUM_LEADERS]].repeat(NUM_AROUND, axis=0)
        moves = spread * rng.standard_normal(leaders.shape) * ~encoding.is_categorical
        around = encoding.snap(leaders + moves)
        candidates = np.concatenate([candidates, around])
        expected = np.concatenate([expected, posterior.expected(around)])
    best: Array = candidates[np.argmax(expected)]
    return best


def main() -> None:
    """Runs the command."""
    found = answers(PoolQuestion.from_text(sys.stdin.read()))
    sys.stdout.write(answer_to_line(found) + "\n")


if __name__ == "__main__":
    main()
