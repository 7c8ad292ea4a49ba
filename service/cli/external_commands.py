"""The command that trains a job's trials with a program of one's own: `agent`."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.asking import DEFAULT_URL, JobId, Token, Url, client_at, say

app = typer.Typer()


@app.command(context_settings={"ignore_unknown_options": True})
def agent(
    job: JobId,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="E.g. python train.py.")],
    max_trials: Annotated[
        int | None, typer.Option(min=1, help="End after so many. Default: when none is left.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Who trains, for people. Default: host and SLURM task.")] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Trains trials of a job with `external` by running COMMAND for each, here.

    COMMAND finds the trial's config as JSON in the file that SHAMPOO_TRIAL_CONFIG names, its number in SHAMPOO_TRIAL,
    and the step up to which a checkpoint of it may be in SHAMPOO_TRIAL_BEGINS_AT_STEP. It prints what it measures, one
    line like {"step": 100, "metrics": {"validation_loss": 0.41}} each, with "epoch" and "seconds" if it likes; other
    keys are left aside, and other lines are shown. A metric of NaN, Infinity or null is not finite: a trial whose
    command ends after such a measurement, before its last step, has diverged, which is no error. SIGTERM tells COMMAND
    to end, and then what it has started and left: its trial is stopped or paused, its job has ended, or this agent is
    told to end. It has no standard input. Exit status 0: the job hands out no more trials.
    """
    from service.client.training.agent import Terminated, train_with_command

    with client_at(url, token) as client:
        try:
            for told in train_with_command(client, job, command, name=name, max_trials=max_trials):
                say(told.text, err=told.is_fault)
        except KeyboardInterrupt:
            say("told to end: the trial is released", err=True)
            raise
        except Terminated as error:
            say("told to end: the trial is released", err=True)
            raise typer.Exit(128 + error.number) from None
