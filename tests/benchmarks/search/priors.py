"""Priors of an `auto` search, for benchmarks: from shipped tables, a store, or on purpose wrong."""

from __future__ import annotations

import functools
import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from search_spaces import SearchSpace
from service.domain import Direction
from service.scheduler.policy.searching.search_prior import LENGTHS_IN_TABLES, KnownConfig
from service.store.session import Database
from service.transfer.candidates import TransferCandidate, shipped_members
from service.transfer.known import known_of
from service.transfer.situation import Situation
from service.use_cases.untuned.transferring import stored_candidates
from tests.benchmarks.search.make_curves import TASKS, Task
from tests.benchmarks.search.make_seed_curves import Task as SeedTask
from tests.benchmarks.search.parameter_lengths import learnt, tables
from tests.benchmarks.search.search_simulation import Problem, final_value
from trainers.identity.shape import model_shape
from trainers.identity.values import Fingerprint
from trainers.workloads.registry import load

PRIORS = ("none", "tables", "store", "misleading")
OF_FUNCTIONS = {
    "digits_convnet": "digits-convnet",
    "stdlib_gpt": "stdlib-gpt",
    "digits_autoencoder": "digits-autoencoder",
}
"""Tasks of the shipped curve tables, by the function that reads them."""
NUM_MISLEADING = 3
NUM_DRAWN = 200


def target_of(
    objective: str, fingerprint: Path | None, batch_size: int | None, num_steps: int | None
) -> Situation | None:
    """The model and the training behind an objective; None: they are not known.

    Raises:
        ValueError: a fingerprint without batch size and steps.
    """
    if fingerprint is not None:
        if batch_size is None or num_steps is None:
            raise ValueError("--fingerprint needs --batch-size and --num-steps")
        model = Fingerprint.from_json(json.loads(fingerprint.read_text()))
        return Situation.of(model.shape, batch_size=batch_size, num_steps=num_steps, workload=model.workload)
    name = OF_FUNCTIONS.get(objective.rpartition(":")[2])
    if name is None:
        return None
    return situation_of(TASKS[name])


def situation_of(task: Task | SeedTask) -> Situation:
    """The model of a table's task, and how long it is trained."""
    with torch.device("meta"):
        shape = model_shape(load(task.workload, dict(task.options)).build_model())
    return Situation.of(shape, batch_size=task.batch_size, num_steps=task.num_steps, workload=task.workload)


def known_configs(
    prior: str, problem: Problem, target: Situation | None, *, database_url: str | None = None
) -> Sequence[KnownConfig]:
    """The configs that a search of the problem knows before; nothing that was tuned for its own workload.

    Raises:
        ValueError: the objective's model, or the database, is not known.
    """
    if prior == "none":
        return ()
    if prior == "misleading":
        return _misleading(problem)
    if target is None:
        raise ValueError(f"--prior {prior} needs the objective's model: --fingerprint FILE")
    if prior == "tables":
        return known_among(problem.space, shipped_but(target), target)
    return known_among(problem.space, _stored(target, database_url), target)


@functools.cache
def lengths_without(workload: str | None) -> Mapping[str, float]:
    """The length scales in decades that a search with known configs expects, from tables of other workloads than this
    one; None: from all."""
    if workload is None:
        return LENGTHS_IN_TABLES
    found = learnt([one for one in tables() if one.workload != workload])
    return {name: length for name, (length, _) in found.items()}


def shipped_but(target: Situation) -> list[TransferCandidate]:
    """The shipped table's best configs of other workloads."""
    return [member.candidate() for member in shipped_members() if member.workload != target.workload]


def known_among(space: SearchSpace, candidates: Sequence[TransferCandidate], target: Situation) -> list[KnownConfig]:
    """The configs among the candidates that a search of the space is told of, moved to the target."""
    return [KnownConfig(found.parameters, found.distance) for found in known_of(space, candidates, target)]


def _stored(target: Situation, database_url: str | None) -> list[TransferCandidate]:
    if database_url is None:
        raise ValueError("--prior store needs --database URL")
    database = Database(database_url)
    try:
        with database.reading() as session:
            found = stored_candidates(session, target, project=None)
    finally:
        database.close()
    return [one for one in found if one.situation is None or one.situation.workload != target.workload]


def _misleading(problem: Problem) -> list[KnownConfig]:
    """Configs among the worst tenth of those drawn that do not diverge, said to be the model's own."""
    rng = random.Random("misleading")
    drawn = [problem.space.sample(rng) for _ in range(NUM_DRAWN)]
    valued = [(final_value(problem.objective(one), problem.num_units), one) for one in drawn]
    worst_last = -1.0 if problem.direction is Direction.MAXIMIZE else 1.0
    finite = sorted((entry for entry in valued if math.isfinite(entry[0])), key=lambda entry: worst_last * entry[0])
    return [KnownConfig(one, 0.0) for _, one in finite[-NUM_DRAWN // 10 :][:NUM_MISLEADING]]
