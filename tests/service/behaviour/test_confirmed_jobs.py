"""Jobs that confirm what they found, on real Ray clusters and real ranks."""

from __future__ import annotations

from typing import Any

import pytest

from service.domain import JobState, Phase, TrialState
from service.specification.search.pauses import PAUSE_SHARES
from service.store.models import Job, Trial
from service.store.repositories import EventRepository, RecommendationRepository
from tests.service.scheduler.test_job_run import specification
from tests.support.service.answers import assert_has_loss
from tests.support.service.service_process import ServiceProcesses
from trainers.storage import WEIGHTS_FILE

pytestmark = pytest.mark.patient

STEPS = [10, 20, 30, 40]
FIRST_RUNG = round(PAUSE_SHARES[0] * STEPS[-1])


@pytest.fixture
def service(shared_service: ServiceProcesses) -> ServiceProcesses:
    """One with a worker."""
    return shared_service


def _submit(service: ServiceProcesses, *, num_trials: int, top_k: int, options: dict[str, Any] | None = None) -> str:
    """A job with two baselines of one trial each, which confirms with three seeds, one trial at a time."""
    return service.submit(
        specification(
            num_trials=num_trials,
            options=options,
            baselines=[{"search_space": name, "budget_share": 0.2} for name in ("sgd", "adamw")],
            pruner={"name": None},
            resources={"parallel_trials": 1},
            confirmation={"top_k": top_k, "num_seeds": 3},
        )
    )


def _check(service: ServiceProcesses, job: Job, trials: list[Trial], *, top_k: int) -> list[Trial]:
    """The confirmation trials of a job that has ended, after a look at what has to hold of them."""
    assert job.state is JobState.SUCCEEDED, job.failure
    assert [trial.number for trial in trials] == list(range(len(trials)))
    assert job.num_trials == len(trials)
    found = [trial for trial in trials if trial.phase is not Phase.CONFIRMATION]
    repeated = trials[len(found) :]
    assert all(trial.confirms is None for trial in found)
    completed = [trial for trial in found if trial.state is TrialState.COMPLETED]
    # All but the baselines' single ones were paused between two measurements, and those that went on did so from there.
    assert {trial.measurements[2].step for trial in found if trial.phase is Phase.SEARCH} == {FIRST_RUNG}
    assert {*STEPS} <= set.intersection(*({m.step for m in trial.measurements} for trial in completed))
    ranked = sorted(completed, key=lambda trial: (trial.value, trial.number))
    candidates = [trial for trial in ranked if trial.phase is Phase.SEARCH][:top_k]
    rivals = [trial for trial in ranked if trial.phase is Phase.BASELINE]
    chosen = {trial.confirms: trial.value or 0.0 for trial in repeated if trial.config["seed"] == 1}
    sources = [min(side, key=lambda trial: chosen[trial.number]) for side in (candidates, rivals)]
    assert [(trial.phase, trial.confirms, trial.config["seed"]) for trial in repeated] == [
        *((Phase.CONFIRMATION, source.number, 1) for source in (*candidates, *rivals)),
        *((Phase.CONFIRMATION, source.number, seed) for seed in (2, 3) for source in sources),
    ]
    for trial in repeated:
        source = trials[trial.confirms or 0]
        assert trial.config == {**source.config, "seed": trial.config["seed"]}
        assert trial.parameters == source.parameters
        assert trial.state is TrialState.COMPLETED
        assert [measurement.step for measurement in trial.measurements] == STEPS
        assert trial.value not in (None, source.value)

    with service.database.reading() as session:
        stored = RecommendationRepository(session).of_job(job.id)
        events = EventRepository(session).after(0, project=None, job_id=job.id, limit=10_000)
    assert stored is not None
    evidence = stored.content["evidence"]
    assert evidence["seeds"] == evidence["confirmation"]["seeds"] == [2, 3]
    compared = [trial for trial in repeated if trial.config["seed"] != 1]
    for side, source in zip(("best", "baseline"), sources, strict=True):
        mean = sum(trial.value or 0.0 for trial in compared if trial.confirms == source.number) / 2
        assert evidence[side]["number"] == source.number
        assert evidence[side]["value"] == pytest.approx(mean)
    own = {trial.config["optimizer"]["name"]: trial.number for trial in rivals}
    assert {best["optimizer"]: best["number"] for best in evidence["baselines"]} == own
    assert {best["value"] for best in evidence["baselines"]} == {chosen[number] for number in own.values()}
    told = {event.data["number"]: event.data["confirms"] for event in events if event.kind == "trial.state"}
    assert told == {trial.number: trial.confirms for trial in trials}
    return repeated


def _check_weights(service: ServiceProcesses, repeated: list[Trial]) -> None:
    """The weights that stay are those of the best trial of each compared config, and have its value."""
    compared = {trial.confirms for trial in repeated if trial.config["seed"] != 1}
    best = [min((t for t in repeated if t.confirms == number), key=lambda t: t.value or 0.0) for number in compared]
    kept = service.data_dir / "checkpoints" / "weights" / repeated[0].job_id
    expected = sorted(str(trial.number) for trial in best)
    service.wait_for("the others' weights to go", lambda: sorted(path.name for path in kept.iterdir()) == expected)
    for trial in best:
        assert_has_loss(kept / str(trial.number) / WEIGHTS_FILE, trial.config, trial.value)


def test_the_best_configs_are_trained_again_with_new_seeds_though_the_run_is_killed(service: ServiceProcesses) -> None:
    slowly = service.slowly(0.4) | {"slow_seed": 2}
    job_id = _submit(service, num_trials=5, top_k=2, options=slowly)

    def first_that_compares_is_half_done() -> bool:
        trials = service.trials(job_id)
        return len(trials) == 10 and trials[9].step in STEPS[:-1]

    service.wait_for("a comparing trial to be half done", first_that_compares_is_half_done)
    service.run_process().kill()
    before = service.trials(job_id)
    service.hurry()
    job, trials = service.finish(job_id)
    assert job.attempt == 2
    repeated = _check(service, job, trials, top_k=2)
    assert [(trial.runs, trial.finished_at) for trial in repeated[:4]] == [(1, b.finished_at) for b in before[5:9]]
    assert [trial.runs for trial in repeated[4:]] == [2, 1, 1, 1]
    _check_weights(service, repeated)
