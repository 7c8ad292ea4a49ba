"""Tables in narrow terminals: what a user copies or looks for is whole, other columns make room."""

from __future__ import annotations

import dataclasses
import io
import os
import pty
import subprocess
import sys

import pytest
from rich.console import Console
from rich.table import Table

from service.api import examples
from service.api.schemas.jobs import JobRead
from service.api.schemas.trials import TrialRead
from service.cli.reading.trials_table import trials_table
from service.cli.terminal import jobs_table, progress_panel, show


def printed(table: Table, *, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    show(console, table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [45, 60, 70, 100, 1000])
def test_ids_states_numbers_and_values_are_whole_however_narrow_the_terminal(width: int) -> None:
    job, trial = JobRead.model_validate(examples.JOB), TrialRead.model_validate(examples.TRIAL)
    heading, row, *_ = printed(jobs_table([job], width=width), width=width)
    assert row.startswith(f"{job.id}  ")
    assert job.state.value in row
    assert row == row.rstrip()
    heading, row, *_ = printed(trials_table([trial], metric="validation_loss", width=width), width=width)
    assert row.split()[0] == str(trial.number)
    assert trial.state.value in row
    assert heading.split()[0] == "trial"
    assert "validation_loss" in heading


def test_a_wide_terminal_has_all_columns() -> None:
    trial = TrialRead.model_validate(examples.TRIAL)
    table = trials_table([trial], metric="validation_loss", width=200, curves={trial.number: [2.0, 1.0]})
    heading, *_ = printed(table, width=200)
    assert heading.split() == ["trial", "phase", "state", "steps", "time", "validation_loss", "curve", "parameters"]


def test_a_job_of_which_nothing_has_finished_has_no_empty_lines() -> None:
    job = JobRead.model_validate(examples.JOB)
    none = job.progress.model_copy(update={"num_finished": 0, "max_steps": 0, "trials": {}, "num_paused": 0})
    panel = progress_panel(job.model_copy(update={"progress": none}))
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    show(console, panel)
    assert isinstance(console.file, io.StringIO)
    names = [line[:8].strip() for line in console.file.getvalue().splitlines()]
    assert "trials" in names
    assert not {"", "steps"} & set(names)


def test_numbers_below_each_other_end_in_one_column() -> None:
    first = JobRead.model_validate(examples.JOB)
    best = first.progress.best
    assert best is not None
    progress = first.progress.model_copy(update={"num_finished": 2, "best": dataclasses.replace(best, value=123.4)})
    jobs = [first, first.model_copy(update={"progress": progress})]
    heading, *rows = printed(jobs_table(jobs, width=1000), width=1000)[:3]
    for name in ("trials", "best"):
        end = heading.index(f" {name} ") + len(name) + 1
        assert all(row[end - 1] != " " and row[end : end + 2] == "  " for row in rows), (name, heading, rows)
    trial = TrialRead.model_validate(examples.TRIAL)
    listed = printed(trials_table([trial, trial.model_copy(update={"number": 120})], metric="loss", width=80), width=80)
    assert [line[:5] for line in listed] == ["trial", f"{trial.number:5}", "  120"]


@pytest.mark.processes
def test_sentences_break_between_words_in_a_terminal_and_not_at_all_for_a_program() -> None:
    say = "from service.cli.asking import say_prose; say_prose('the interval of the improvement over seeds')"
    piped = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True).stdout
    assert piped == "the interval of the improvement over seeds\n"
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "20"}
    subprocess.run([sys.executable, "-c", say], stdout=theirs, env=environment, check=True)
    os.close(theirs)
    shown = os.read(ours, 1000)
    os.close(ours)
    assert shown.decode().split("\r\n") == ["the interval of the", "improvement over", "seeds", ""]
