"""The course of one trial of a story: all measurements of the training loop, its output, its failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

from service.domain import FailureReason, OutputStream, TrialState
from service.specification.identity import StoredIdentity
from service.use_cases.run import TrialMeasurements, finish_trial, record_measurements
from service.use_cases.trials.rank_output import Printed, keep_output
from tests.support.service.stories.jobs import Story
from trainers.config import Diverged, Measurement

_places = count(1)


def metrics_of_loop(step: int, loss: float) -> dict[str, float]:
    """A measurement of the training loop for Shampoo."""
    return {
        "train_loss": 0.8 * loss,
        "validation_loss": loss,
        "validation_accuracy": 1 - 0.3 * loss / (0.5 + loss),
        "step_seconds": 0.0127 + 0.0004 * math.sin(step),
        "examples_per_second": 5030.0 + 90 * math.sin(step),
        "optimizer_share": 0.41 + 0.02 * math.cos(step),
        "peak_memory_bytes": 412e6 + 1e6 * min(step, 40),
        "optimizer_state_bytes": 3.4e6,
        "optimizer_num_skipped": 0.0,
        "optimizer_num_failed_refreshes": float(step // 80),
        "optimizer_share_preconditioned": min(1.0, step / 50),
        "optimizer_condition_median": 120.0 + 9 * step,
        "optimizer_condition_max": 4e3 * 1.04**step,
        "optimizer_residual_max": 1e-6 * (1 + step / 50),
        "optimizer_update_to_weight_median": 2e-3 * math.exp(-step / 120),
        "optimizer_update_to_weight_max": 9e-3 * math.exp(-step / 120),
        "optimizer_grafting_ratio_median": 0.7 + step / 400,
        "optimizer_grafting_ratio_max": 1.9 + step / 100,
    }


def measure_all(story: Story, number: int, *, after: int = 0, until: int, final: float = 0.07) -> None:
    """Measures a running trial of 200 steps every ten of them, with all that the loop measures."""
    reported = [
        Measurement(
            step=step,
            epoch=step / 11,
            seconds=step * 0.013,
            metrics=metrics_of_loop(step, final + (2.3 - final) * math.exp(-step / 35)),
        )
        for step in range(after + 10, until + 1, 10)
    ]
    environment = {"device": "cpu", "device_name": None, "world_size": 2, "versions": {"python": "3.12.3"}}
    identity = StoredIdentity("0" * 32, None, environment)
    with story.database.writing() as session:
        record_measurements(session, story.lease, [TrialMeasurements(number, reported, identity)], now=story.later(1))


def diverge_in(story: Story, number: int, parameter: str) -> None:
    """A running trial measures a rising loss up to step 30, and diverges at step 34."""
    reported = [
        Measurement(step=step, epoch=step / 11, seconds=step * 0.013, metrics=metrics_of_loop(step, loss))
        for step, loss in ((10, 2.4), (20, 3.9), (30, 11.0))
    ]
    error = Diverged(
        34,
        f"training loss nan, not finite or above 10000 on 2 of 2 ranks; {parameter} holds values that are not finite",
    )
    with story.database.writing() as session:
        record_measurements(session, story.lease, [TrialMeasurements(number, reported)], now=story.later(1))
        finish_trial(
            session,
            story.lease,
            number,
            TrialState.FAILED,
            reason=FailureReason.DIVERGED,
            detail=str(error),
            now=story.later(1),
        )


def print_lines(
    story: Story, number: int, lines: Sequence[str], *, rank: int = 0, stream: OutputStream = OutputStream.STDOUT
) -> None:
    """A rank of a trial has printed lines."""
    place = next(_places)
    printed = Printed(number, rank, stream, f"file-{place}", place, 0, list(lines))
    with story.database.writing() as session:
        keep_output(session, story.job_id, [printed], bytes_per_rank=2**18, now=story.now)
