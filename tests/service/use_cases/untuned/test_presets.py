"""The presets that tuned models near a job's compare, told before it is submitted."""

from __future__ import annotations

from typing import Any

import pytest

from search_spaces import Scalar
from service.evidence.health.cards import BetterPreset, HealthKind
from service.evidence.health.findings import CLEARLY_BETTER
from service.specification.estimate_lines import estimate_lines
from service.specification.planning import plan_job
from service.store.models import Job
from service.store.repositories import JobRepository, RecommendationRepository
from service.store.session import Database
from service.transfer.promise import PresetsCompared
from service.use_cases.estimating.estimates import estimate_job
from service.use_cases.health import health_of_job
from service.use_cases.progress import progress_of
from service.use_cases.run import finish_job
from service.use_cases.untuned.presets import better_preset
from tests.service.use_cases.untuned.test_members import LOSSES, identity, shape, tuned
from tests.support.service.scenarios import NOW, claimed_job, run_trial, specification


def told(database: Database, *, width: int = 64, project: str = "default", **fields: object) -> PresetsCompared | None:
    plan = plan_job(specification(**fields))
    with database.reading() as session:
        estimate = estimate_job(session, plan, project=project, shape=shape(width))
    assert any("the best trials of the preset" in line for line in estimate_lines(estimate)) == bool(estimate.presets)
    return estimate.presets


def test_a_dry_run_tells_how_presets_compare_on_the_models_of_the_table(sqlite_database: Database) -> None:
    found = told(sqlite_database)
    assert found is not None
    assert {one.preset for one in found.presets} == {"shampoo", "soap", "kl", "spectral", "adamw"}
    assert found.num_models == 14
    ratios = [one.loss_ratio or 0.0 for one in found.presets]
    assert ratios == sorted(ratios)
    assert ratios[0] == 1.0
    assert told(sqlite_database, search_space="family") == told(sqlite_database, search_space="soap") == found


def test_of_another_optimizer_or_of_a_model_that_is_far_from_all_nothing_is_told(sqlite_database: Database) -> None:
    assert told(sqlite_database, search_space="muon") is None
    assert told(sqlite_database, width=2**20) is None


def test_a_projects_jobs_over_the_family_count_among_them(sqlite_database: Database) -> None:
    lease = claimed_job(sqlite_database, search_space="family", baselines=[])
    of_member: dict[str, tuple[float, ...]] = {"spectral": LOSSES, "kl": tuple(10 * loss for loss in LOSSES)}
    for number, (member, loss) in enumerate((member, loss) for member, own in of_member.items() for loss in own):
        values: dict[str, Scalar] = {"preconditioner": member, "lr": 0.01}
        run_trial(sqlite_database, lease, number, loss, identity=identity(), values=values)
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)
    before, found = told(sqlite_database, project="other"), told(sqlite_database)
    assert before is not None
    assert found is not None
    assert found.num_models == before.num_models + 1
    assert found.octaves == 0.0
    assert _ratio(found, "kl") / _ratio(found, "spectral") > 1.2 * _ratio(before, "kl") / _ratio(before, "spectral")


def ended(database: Database, space: str, **fields: Any) -> Job:
    """A job with a recommendation, whose search had this space."""
    job_id = tuned(database, search_space=space, baselines=[], **fields)
    with database.reading() as session:
        return JobRepository(session).get(job_id)


def better(database: Database, job: Job) -> BetterPreset | None:
    with database.reading() as session:
        return better_preset(session, job)


def test_an_ended_job_is_told_of_a_preset_that_was_better_on_models_like_its_own(sqlite_database: Database) -> None:
    job = ended(sqlite_database, "spectral")
    found = better(sqlite_database, job)
    assert found is not None
    assert (found.searched, found.num_models) == ("spectral", 14)
    assert found.loss_ratio < 1
    with sqlite_database.reading() as session:
        progress = progress_of(session, [job], now=NOW)[job.id]
        stored = RecommendationRepository(session).of_job(job.id)
        assert stored is not None
        cards = health_of_job(session, job, progress, stored.evidence)
    assert any(card.kind is HealthKind.ANOTHER_PRESET for card in cards) == (found.loss_ratio <= CLEARLY_BETTER)
    assert better(sqlite_database, ended(sqlite_database, found.name)) is None  # it is the best
    assert better(sqlite_database, job) is None  # its model was tuned with that one meanwhile


@pytest.mark.parametrize(
    ("space", "fields"),
    [
        ("family", {}),
        ("muon", {}),
        ("shampoo-sgd", {}),
        ("spectral", {"currency": "seconds"}),
    ],
)
def test_a_job_that_compares_presets_or_is_not_comparable_is_told_of_none(
    space: str, fields: dict[str, Any], sqlite_database: Database
) -> None:
    assert better(sqlite_database, ended(sqlite_database, space, **fields)) is None


def _ratio(compared: PresetsCompared, preset: str) -> float:
    (ratio,) = (one.loss_ratio for one in compared.presets if one.preset == preset)
    assert ratio is not None
    return ratio
