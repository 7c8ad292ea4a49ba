"""Groups of real rank processes on a small local Ray cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import itertools
import os
import re
import signal
import socket
import sys
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
import torch
from ray.util.placement_group import PlacementGroup
from torch import nn

from service.domain import FailureReason, OutputStream
from service.places import NodePlace
from service.scheduler.output.files import OutputPlace, directory_of
from service.scheduler.output.reading import read_output
from service.scheduler.ranks.rank import Rank, RankFailure, RankOutcome
from service.scheduler.ranks.rank_group import RankGroup
from tests.service.scheduler.ranks.conftest import TWO
from tests.support.service.service_process import PLUGIN
from tests.support.trainers.trials import determined
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from trainers.config import Measurement, OptimizerConfig, TrialConfig
from trainers.workloads.digits.digits import DigitsMLP

pytestmark = [
    # Ray leaves its log files and sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def order(**options: Any) -> TrialConfig:
    return TrialConfig(
        workload="troubled-digits",
        workload_options=options,
        optimizer=OptimizerConfig("adamw", {"lr": 1e-3}),
        num_steps=40,
        evaluate_every=10,
        batch_size=32,
    )


def train(
    group: RankGroup, config: TrialConfig, directory: Path, *, output: OutputPlace | None = None
) -> list[Measurement | RankFailure]:
    """Trains a trial to its end."""
    group.start(config, str(directory), output=output)
    outcomes: list[Measurement | RankFailure] = []
    while (outcome := group.advance()) is not None:
        outcomes.append(outcome)
        if isinstance(outcome, RankFailure):
            break
    return outcomes


@pytest.mark.usefixtures("bundles")
def test_a_users_task_gets_the_environment_that_it_asks_for() -> None:
    """Of all that runs in a local cluster, only a user's own code can: the agent that sets it up starts for it."""
    value: Any = ray.remote(num_cpus=0, runtime_env={"env_vars": {"VALUE": "its own"}})(lambda: os.environ["VALUE"])
    assert ray.get(value.remote(), timeout=PATIENCE_SECONDS) == "its own"


@pytest.mark.usefixtures("bundles")
def test_forked_workers_draw_random_ids_of_their_own() -> None:
    """Ray stores an object under such an id as a worker begins: with one id, one of two that begin at once dies."""
    once: Any = ray.remote(num_cpus=0, max_calls=1)  # in a process of its own
    draw = once(lambda: [ray.ObjectRef.from_random().hex() for _ in range(100)])
    drawn = ray.get([draw.remote() for _ in range(4)], timeout=PATIENCE_SECONDS)
    assert len(set(itertools.chain(*drawn))) == 400


def test_a_group_trains_many_trials_in_the_same_processes(bundles: PlacementGroup, tmp_path: Path) -> None:
    group = RankGroup(TWO, bundles)
    try:
        first = train(group, order(), tmp_path / "0")
        identity = group.identity()
        processes = group.process_ids()
        assert group.places() == (NodePlace(socket.gethostname(), ()),)
        group.start(order(), str(tmp_path / "1"))
        again = [group.advance()]
        diverged = train(group, order(trouble="diverge"), tmp_path / "2")  # drops the second trial
        refused = train(group, order(trouble="error", nonsense=1), tmp_path / "3")
        last = train(group, order(), tmp_path / "4")
        assert group.process_ids() == processes
    finally:
        group.close()
    assert [m.step for m in first if isinstance(m, Measurement)] == [10, 20, 30, 40]
    assert metrics(again) == metrics(first[:1])
    assert metrics(last) == metrics(first)
    assert [(f.reason, f.group_is_usable) for f in diverged if isinstance(f, RankFailure)] == [
        (FailureReason.DIVERGED, True)
    ]
    assert [(f.reason, f.group_is_usable) for f in refused if isinstance(f, RankFailure)] == [
        (FailureReason.ERROR, True)
    ]
    assert len(set(processes)) == 2
    assert group.num_trials == 5
    assert identity is not None
    assert (identity.environment.device, identity.environment.world_size) == ("cpu", 2)


def test_ranks_train_one_interval_ahead_and_leave_no_trace_of_it(bundles: PlacementGroup, tmp_path: Path) -> None:
    group = RankGroup(TWO, bundles)
    first, second = tmp_path / "first", tmp_path / "second"
    try:
        group.start(order(steps_file=str(first)), str(tmp_path / "0"))
        assert step_of(group.advance()) == 10
        wait_until(lambda: steps_begun(first) == 20, "the interval after the one that was asked for")
        time.sleep(0.5)  # a driver that is slow to deal with it
        assert steps_begun(first) == 20
        assert checkpoints(tmp_path / "0") == ["step-00000010"]
        assert step_of(group.advance()) == 20

        # Paused where it was expected, between two measurements: nothing is trained ahead.
        group.start(order(steps_file=str(second)), str(tmp_path / "1"), until_step=15)
        assert [step_of(group.advance()) for _ in range(3)] == [5, 10, 15]
        assert checkpoints(tmp_path / "1") == ["step-00000010", "step-00000015"]
        time.sleep(0.5)
        assert steps_begun(second) == 15
        assert step_of(group.advance()) == 20  # it is not paused after all

        # In both trials a next interval is trained by now, or almost; whoever resumes them misses nothing.
        resumed = [
            train(group, order(steps_file=str(file)), tmp_path / name) for name, file in (("0", first), ("1", second))
        ]
    finally:
        group.close()
    assert [[step_of(outcome) for outcome in outcomes] for outcomes in resumed] == [[20, 30, 40], [20, 30, 40]]


def test_the_next_trial_does_not_wait_for_the_interval_that_is_thrown_away(
    bundles: PlacementGroup, tmp_path: Path
) -> None:
    group = RankGroup(TWO, bundles)
    # Its second interval takes 200 seconds.
    slow = dataclasses.replace(order(seconds_per_step=1.0, slow_from_step=200), num_steps=400, evaluate_every=200)
    try:
        group.start(slow, str(tmp_path / "0"))
        assert step_of(group.advance()) == 200
        group.start(slow, str(tmp_path / "1"))  # given up before it has begun
        started = time.monotonic()
        group.start(order(), str(tmp_path / "2"))
        assert step_of(group.advance()) == 10
        assert time.monotonic() - started < 100.0
    finally:
        group.close()
    assert group.is_usable
    assert checkpoints(tmp_path / "0") == ["step-00000200"]


def test_a_killed_rank_is_the_guilty_one_and_spoils_the_group(bundles: PlacementGroup, tmp_path: Path) -> None:
    group = RankGroup(TWO, bundles)
    try:
        place = OutputPlace(str(tmp_path / "output"), "job_1", 7)
        group.start(order(trouble="words", trouble_step=3, seconds_per_step=0.01), str(tmp_path), output=place)
        assert isinstance(group.advance(), Measurement)
        os.kill(group.process_ids()[1], signal.SIGKILL)
        failure = group.advance()
        survivor = group.process_ids()[0]
    finally:
        group.close()
    assert isinstance(failure, RankFailure)
    assert failure.reason is FailureReason.LOST
    assert re.fullmatch(
        r"rank 1 died: process \d+ on [\d.]+: it was killed by signal 9 \(SIGKILL\), as by the kernel for memory: .*",
        failure.detail,
    )
    assert failure.exit_status == -signal.SIGKILL
    assert not group.is_usable
    wait_until(lambda: not psutil.pid_exists(survivor), "the survivor's end")
    # All that the killed one had written is there, of Python, of C's buffers, and of a process that it had started.
    pieces = read_output(directory_of(place.parent, place.job_id), {})
    assert {(piece.source.trial, piece.source.rank) for piece in pieces} <= {(7, 0), (7, 1)}
    printed = {(piece.source.rank, piece.source.stream): piece.content for piece in pieces}
    assert printed[1, OutputStream.STDOUT] == b"Python's words\nC's words\na child's words\n"
    assert printed[1, OutputStream.STDERR] == b"an error's words\n"


def test_a_rank_that_gets_sigterm_while_it_waits_for_its_group_ends_and_is_told_of(
    bundles: PlacementGroup, tmp_path: Path
) -> None:
    group = RankGroup(TWO, bundles)
    try:
        group.start(order(), str(tmp_path))
        assert isinstance(group.advance(), Measurement)
        time.sleep(1.0)  # trained ahead, the ranks wait to hear that the measurement was dealt with
        os.kill(group.process_ids()[1], signal.SIGTERM)
        time.sleep(1.0)  # so that a rank that would hear no more calls does so before it is told
        failure = group.advance(timeout_seconds=PATIENCE_SECONDS)
    finally:
        group.close()
    assert isinstance(failure, RankFailure)
    assert (failure.reason, group.is_usable) == (FailureReason.LOST, False)


def test_an_error_on_one_rank_is_told_although_the_other_waits_for_it(bundles: PlacementGroup, tmp_path: Path) -> None:
    group = RankGroup(TWO, bundles)
    try:
        place = OutputPlace(str(tmp_path / "output"), "job_1", 0)
        [*_, failure] = train(group, order(trouble="error"), tmp_path, output=place)
    finally:
        group.close()
    assert isinstance(failure, RankFailure)
    assert failure.reason is FailureReason.ERROR
    assert re.fullmatch(r"KeyError: 'label of image 17' \(workload\.py, line \d+\)", failure.detail)
    assert "_meet_trouble" in failure.trace
    assert not group.is_usable
    pieces = read_output(directory_of(place.parent, place.job_id), {})
    [printed] = [piece.content.decode() for piece in pieces if piece.source.rank == 1]
    assert printed == failure.trace


def test_a_rank_that_never_reports_ends_its_trial_and_is_named(bundles: PlacementGroup, tmp_path: Path) -> None:
    group = RankGroup(TWO, bundles)
    try:
        group.start(order(), str(tmp_path / "0"))
        assert isinstance(group.advance(timeout_seconds=PATIENCE_SECONDS), Measurement)
        group.start(order(trouble="hang"), str(tmp_path / "1"))
        assert isinstance(group.advance(timeout_seconds=PATIENCE_SECONDS), Measurement)
        failure = group.advance(timeout_seconds=3.0)  # it hangs in step 16, between the first two measurements
    finally:
        group.close()
    assert isinstance(failure, RankFailure)
    assert failure.reason is FailureReason.ERROR
    # Rank 0 waits in a collective for rank 1, which hangs: from outside both are silent.
    assert failure.detail == "no measurement came in the time allowed; ranks [0, 1] hang"
    assert not group.is_usable


def test_a_workload_that_prints_binary_garbage_trains_on(bundles: PlacementGroup, tmp_path: Path) -> None:
    group = RankGroup(TWO, bundles)
    try:
        outcomes = train(group, order(trouble="garbage"), tmp_path)
    finally:
        group.close()
    assert [m.step for m in outcomes if isinstance(m, Measurement)] == [10, 20, 30, 40]


def test_a_checkpoint_that_does_not_fit_is_told_from_an_error_of_the_trial(
    bundles: PlacementGroup, tmp_path: Path
) -> None:
    outcomes = []
    for seed in (0, 1):
        group = RankGroup(TWO, bundles)
        try:
            outcomes = train(group, dataclasses.replace(order(), seed=seed), tmp_path)
        finally:
            group.close()
    [failure] = outcomes
    assert isinstance(failure, RankFailure)
    assert (failure.reason, failure.is_mismatch) == (FailureReason.ERROR, True)
    assert "CheckpointMismatch" in failure.detail


def test_out_of_memory_is_told_with_the_peak(bundles: PlacementGroup, tmp_path: Path) -> None:
    group = RankGroup(TWO, bundles)
    try:
        [*_, failure] = train(group, order(trouble="memory"), tmp_path)
    finally:
        group.close()
    assert isinstance(failure, RankFailure)
    assert failure.reason is FailureReason.OUT_OF_MEMORY
    match = re.fullmatch(r"MemoryError: no room for the batch \(this rank's peak: (\d+\.\d\d) GiB\)", failure.detail)
    assert match is not None
    assert 0.05 < float(match[1]) < 10  # torch itself is some hundreds of MiB


def test_a_rank_tells_the_gpus_that_ray_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get_gpu_ids", lambda: [3])
    rank = Rank(num_threads=torch.get_num_threads())  # in this process
    joined = rank.join(rank=0, world_size=1, meeting_point="")
    assert (joined.process_id, joined.place) == (os.getpid(), NodePlace(socket.gethostname(), ("3",)))


@pytest.mark.usefixtures("bundles")
@pytest.mark.parametrize("trouble", ["none", "diverge", "error"])
def test_a_rank_keeps_nothing_of_a_trial_that_ended(
    trouble: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PLUGIN)
    models: list[weakref.ref[nn.Module]] = []
    build_model = DigitsMLP.build_model

    def build_model_in_a_cycle(self: DigitsMLP) -> nn.Module:
        model = build_model(self)
        model.__dict__["parent"] = [model]
        models.append(weakref.ref(model))
        return model

    monkeypatch.setattr(DigitsMLP, "build_model", build_model_in_a_cycle)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the rank sets it; so it is restored
    rank = Rank(num_threads=torch.get_num_threads())  # in this process
    rank.start(1, order(trouble=trouble), str(tmp_path), until_step=None)
    # All of them, before they come. For Ray's types it is a method of an actor.
    rank.take(1, 4)  # type: ignore[operator]
    while isinstance(rank.advance(), Measurement):
        pass
    rank.stop()
    gc.unfreeze()  # this process is not a rank
    [model] = models
    assert model() is None


@pytest.mark.usefixtures("bundles")
def test_a_failure_is_told_even_where_the_output_has_no_room_for_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PLUGIN)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the rank sets it; so it is restored
    rank = Rank(num_threads=torch.get_num_threads())  # in this process
    rank.start(1, order(trouble="error"), str(tmp_path), until_step=None)
    rank.take(1, 4)  # type: ignore[operator]  # for Ray's types it is a method of an actor
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115  # it cannot even be closed without an error
    try:
        monkeypatch.setattr(sys, "stderr", full)
        while isinstance(outcome := rank.advance(), Measurement):
            pass
    finally:
        with suppress(OSError):
            full.close()
    gc.unfreeze()  # this process is not a rank
    assert isinstance(outcome, RankFailure)
    assert outcome.reason is FailureReason.ERROR


class Textless(RuntimeError):
    def __str__(self) -> str:
        raise LookupError("no text")


@pytest.mark.usefixtures("bundles")
@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (Textless(), "Textless: (its message cannot be shown)"),
        (ValueError("of file a\ud800.txt"), "ValueError: of file a\\ud800.txt"),
        (asyncio.CancelledError("no Exception"), "CancelledError: no Exception"),
    ],
)
def test_an_exception_without_a_proper_text_ends_its_trial_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, detail: str
) -> None:
    def fails(*_: object) -> Iterator[Measurement]:
        yield from ()
        raise error

    monkeypatch.setattr("trainers.loop.train", fails)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the rank sets it; so it is restored
    rank = Rank(num_threads=torch.get_num_threads())  # in this process
    rank.start(1, order(), str(tmp_path), until_step=None)
    outcome = rank.advance()
    gc.unfreeze()  # this process is not a rank
    assert isinstance(outcome, RankFailure)
    assert outcome.reason is FailureReason.ERROR
    assert outcome.detail.startswith(f"{detail} (test_rank_group.py, line ")
    outcome.trace.encode()


def metrics(outcomes: list[Any]) -> list[Any]:
    return [determined(outcome.metrics) for outcome in outcomes]


def step_of(outcome: RankOutcome) -> int:
    assert isinstance(outcome, Measurement), outcome
    return outcome.step


def steps_begun(file: Path) -> int:
    """The newest step in a workload's file of steps."""
    return int(file.read_text().split()[-1])


def checkpoints(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
