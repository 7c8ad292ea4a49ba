"""`shampoo-tuner demo`: a service of its own, a real job submitted over HTTP, and a config to paste at the end."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from service.api.schemas.jobs import JobRead
from service.cli import terminal
from service.cli.asking import say_prose
from service.cli.reading import watching
from service.client import ApiError, Client, ServiceUnreachable
from service.domain import Currency, JobState, Phase
from service.errors import ServiceError
from service.evidence.in_words.words import evidence_lines
from service.server.serve import make_directories
from service.settings import ENV_PREFIX, Settings
from service.use_cases.estimating.machine_memory import usable_cpus
from trainers.workload.user_workload import is_reference

START_SECONDS = 60.0
"""Time for the service to be ready, by judgement: its imports take some seconds of a quiet machine."""
STOP_SECONDS = 45.0
"""Time for it to stop in order: half as much again as it gives its worker (`serve.WORKER_STOP_SECONDS`)."""

JOB = {
    "search_space": "shampoo",
    "baselines": [{"search_space": "adamw"}],
    "training": {"num_steps": 100, "evaluate_every": 10},
}
NUM_RANKS = 2
"""Ranks of each trial. On a machine with one CPU they share it."""
NUM_CONFIRMED = 3
"""Configs of each side that are trained again: one more than by default, as AdamW is unstable on the autoencoder."""


class DemoFailed(ServiceError):
    """The demo's service did not start."""


def demo_job(workload: str, *, num_trials: int, num_seeds: int, currency: Currency) -> dict[str, Any]:
    """The job that the demo submits; a confirmation if there are new seeds."""
    top_k = min(NUM_CONFIRMED, num_trials // 2)
    confirmation = {"top_k": top_k, "num_seeds": num_seeds} if num_seeds else None
    own = {"workload": {"name": workload}, "budget": {"num_trials": num_trials}, "currency": currency}
    resources = {"workers_per_trial": NUM_RANKS, "cpus_per_worker": min(1.0, usable_cpus() / NUM_RANKS)}
    return JOB | own | {"confirmation": confirmation, "resources": resources}


def run_demo(
    *,
    workload: str,
    num_trials: int,
    num_seeds: int,
    currency: Currency,
    keep: bool,
    directory: Path | None,
    settings: Settings,
    console: Console,
) -> bool:
    """Runs the demo; whether its job succeeded.

    Args:
        workload: the name of a registered one, or module:Class, found from the current directory.
        num_seeds: new seeds of its confirmation; 0: it has none.
        currency: of its verdict.
        keep: leaves the service running until Ctrl-C.
        directory: for the service's data; must not hold a database yet. None: a new one.

    Raises:
        DemoFailed: the service does not start; names its log.
        CannotServe: the directory cannot be made, or written to.
        ApiError: there is no such workload.
    """
    if directory is None:
        directory = settings.data_dir / "demos" / f"{datetime.now():%Y-%m-%d-%H%M%S}"
    update = {"data_dir": directory.absolute(), "database_url": None, "checkpoint_directory": None, "port": 0}
    update["allow_code"] = settings.allow_code or is_reference(workload)  # named by whoever runs the demo
    own = settings.model_copy(update=update)
    if any(file.exists() for file in own.database_files):
        raise DemoFailed(f"{directory} holds a database already; the demo wants a new directory")
    say = partial(terminal.say, console)
    serve_again = f"shampoo-tuner serve --data-dir {shlex.quote(str(own.data_dir))}"
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to stop the service on the way out
    with running_service(own) as url, Client(url) as client:
        say(f"The service runs; its data are in {own.data_dir}")
        asked = demo_job(workload, num_trials=num_trials, num_seeds=num_seeds, currency=currency)
        job: JobRead = client.submit(asked, name="demo")
        say(f"Job {job.id} was submitted: {num_trials} trials of {workload}, two ranks each.")
        if num_seeds:
            confirmation = job.progress.phases[Phase.CONFIRMATION]
            say(
                f"Then up to {confirmation.num_trials} more: the best configs of both sides again, with {num_seeds} "
                "new seeds."
            )
        say(f"Dashboard: {url}/jobs/{job.id}")
        try:
            job = watching.watch(client, job.id, console)
        except KeyboardInterrupt:
            say(f"Interrupted; the service stops. To go on with the job: {serve_again}")
            raise
        if job.state is JobState.SUCCEEDED:
            recommendation = client.recommendation(job.id)
            say(f"\nThe recommended config, to paste after `model`:\n\n{recommendation.python}")
            for line in evidence_lines(recommendation.evidence):
                say_prose(line)
        else:
            say("")
            say(f"The job {job.state}: {job.failure or 'no reason given'}")
            say(f"Its log is {own.data_dir / 'logs' / f'{job.id}.log'}")
        if keep:
            say(f"\nThe service keeps running at {url}; Ctrl-C stops it.")
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    say(f"\nTo look at it again: {serve_again}")
    return job.state is JobState.SUCCEEDED


@contextlib.contextmanager
def running_service(settings: Settings) -> Iterator[str]:
    """A service of its own; its address, once it is ready.

    Raises:
        DemoFailed: it does not start; names its log.
        CannotServe: its data directory cannot be made, or written to.
    """
    make_directories(settings, with_checkpoints=False)
    log_path = settings.data_dir / "service.log"
    with log_path.open("ab") as log:
        environment = {**os.environ, **settings.to_environment()}
        for name in ("DATABASE_URL", "CHECKPOINT_DIRECTORY"):
            environment.pop(f"{ENV_PREFIX}{name}", None)
        # A session of its own: Ctrl-C reaches the demo, which stops the service in order.
        process = subprocess.Popen(
            [sys.executable, "-m", "service", "serve", "--stop-with-stdin"],
            stdin=subprocess.PIPE,  # never written to: its end tells the service that the demo is gone
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            start_new_session=True,
            text=True,
        )
    try:
        url = _address(process, log_path)
        _await_ready(url, process, log_path)
        yield url
    finally:
        _stop(process)


def _address(process: subprocess.Popen[str], log: Path) -> str:
    """The address that the service tells in its first line."""
    assert process.stdout is not None
    for word in process.stdout.readline().split():
        if word.startswith("http://"):
            return word
    raise DemoFailed(f"the service did not start; its log is {log}: {_tail(log)}")


def _await_ready(url: str, process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    with Client(url) as client:
        while True:
            try:
                client.readiness()
                return
            except (ApiError, ServiceUnreachable) as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise DemoFailed(f"the service is not ready; its log is {log}: {_tail(log)}") from error
            time.sleep(0.1)


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").strip().splitlines()[-3:])


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
