"""A trial beside the others of its job: the band of its baseline, the best of its side, its relatives."""

from __future__ import annotations

from service.domain import Direction, Phase, TrialState
from service.store.models import Job, Trial
from service.store.repositories import JobRepository, TrialRepository
from service.store.repositories.of_trials.measurements import CurvePoint
from service.store.repositories.of_trials.trial_relations import TrialRelationRepository
from service.store.session import Database, Session
from service.use_cases.leases import Lease
from service.use_cases.run import add_trial
from service.use_cases.trials.trial_curves import BandPoint, band_points, origin_of, trial_curve
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, fork_trial, measure, measure_curve
from trainers.config import TrialConfig


def point(step: int, value: float | None) -> CurvePoint:
    return CurvePoint(step, step / 10, step / 100, value)


def test_a_band_has_the_lowest_the_middle_and_the_highest_value_at_each_step() -> None:
    curves = [[point(10, 3.0), point(20, 1.0)], [point(10, 5.0), point(20, None)], [point(10, 4.0)]]
    assert band_points(curves) == [
        BandPoint(10, 1.0, 0.1, low=3.0, median=4.0, high=5.0, num_trials=3),
        BandPoint(20, 2.0, 0.2, low=1.0, median=1.0, high=1.0, num_trials=1),
    ]
    assert band_points([]) == []


def job_with_trials(database: Database) -> Lease:
    """Search trials 0 (best), 1 (worse), 4 (pruned), baseline trials 2 and 3; 5 repeats 0, 6 is a fork of 1."""
    lease = claimed_job(database, budget={"num_trials": 8})
    for number, phase, losses in (
        (0, Phase.SEARCH, {10: 2.0, 40: 0.2}),
        (1, Phase.SEARCH, {10: 3.0, 40: 0.4}),
        (2, Phase.BASELINE, {10: 4.0, 40: 0.5}),
        (3, Phase.BASELINE, {10: 6.0, 40: 0.7}),
    ):
        begin_trial(database, lease, number, phase)
        measure_curve(database, lease, number, losses)
        end_trial(database, lease, number)
    begin_trial(database, lease, 4)
    measure(database, lease, 4, 10, 5.0)
    end_trial(database, lease, 4, TrialState.PRUNED)
    with database.writing() as session:
        found_by = TrialRepository(session).get(lease.job_id, 0)
        config = TrialConfig.from_json({**found_by.config, "seed": 7})
        add_trial(
            session,
            lease,
            number=5,
            phase=Phase.CONFIRMATION,
            parameters=found_by.parameters,
            config=config,
            confirms=0,
            now=NOW,
        )
    fork_trial(database, lease, 6, parent=1, step=10, lr=0.002)
    return lease


def read(session: Session, lease: Lease, number: int) -> tuple[Job, Trial]:
    return JobRepository(session).get(lease.job_id), TrialRepository(session).get(lease.job_id, number)


def test_a_trial_is_seen_beside_the_best_of_its_side_and_its_baseline(database: Database) -> None:
    lease = job_with_trials(database)
    with database.reading() as session:
        curve = trial_curve(session, *read(session, lease, 1), "validation_loss")
        assert [(found.step, found.value) for found in curve.points] == [(10, 3.0), (40, 0.4)]
        assert (curve.best_number, [found.value for found in curve.best_points]) == (0, [2.0, 0.2])
        assert curve.band is not None
        assert (curve.band.optimizer, curve.band.num_trials, curve.band.num_completed) == ("adamw", 2, 2)
        assert [(at.step, at.low, at.median, at.high) for at in curve.band.points] == [
            (10, 4.0, 5.0, 6.0),
            (40, 0.5, 0.6, 0.7),
        ]
        assert trial_curve(session, *read(session, lease, 0), "validation_loss").best_number is None
        of_baseline = trial_curve(session, *read(session, lease, 3), "validation_loss")
        assert of_baseline.best_number == 2
        unknown = trial_curve(session, *read(session, lease, 1), "nonesuch")
        assert (unknown.band, unknown.best_number) == (None, 0)
        assert {found.value for found in unknown.points} == {None}


def test_a_trial_has_a_place_neighbours_and_relatives(database: Database) -> None:
    lease = job_with_trials(database)
    with database.reading() as session:
        relations = TrialRelationRepository(session)
        _, trial = read(session, lease, 1)
        place = relations.place_of(trial, Phase.SEARCH, "shampoo", Direction.MINIMIZE)
        assert (place.num_others, place.num_better, place.best) == (1, 1, 0.2)
        reverse = relations.place_of(trial, Phase.SEARCH, "shampoo", Direction.MAXIMIZE)
        assert (reverse.num_better, reverse.best) == (0, 0.2)
        at_rung = relations.measured_at(
            lease.job_id, Phase.SEARCH, "shampoo", step=10, metric="validation_loss", before=NOW
        )
        assert at_rung == {0: 2.0, 1: 3.0, 4: 5.0, 6: 3.0}
        assert relations.neighbours(lease.job_id, 0) == (None, 1)
        assert relations.neighbours(lease.job_id, 6) == (5, None)
        (repeat,) = relations.confirmed_by(lease.job_id, 0)
        assert (repeat.number, repeat.seed, repeat.state) == (5, 7, TrialState.QUEUED)
        (fork,) = relations.forks_of(lease.job_id, 1)
        assert (fork.number, fork.forked_at_step) == (6, 10)
        origin = origin_of(session, read(session, lease, 5)[1])
        assert (origin.phase, origin.optimizer) == (Phase.SEARCH, "shampoo")
        assert len(relations.last_metrics(lease.job_id, Phase.BASELINE, "adamw", limit=1)) == 1
        assert relations.completed_ids(lease.job_id, Phase.BASELINE, "muon") == []
