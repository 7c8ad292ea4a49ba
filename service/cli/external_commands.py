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
        int | None, typer.Option(min=1, help="Stop after this many trials. Default: when none is left.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of this agent, shown to people. Default: host and SLURM task.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Trains trials of a job with `external` on this machine, by running COMMAND for each.

    COMMAND finds the trial's config as JSON in the file that SHAMPOO_TRIAL_CONFIG names, its number in SHAMPOO_TRIAL,
    and in SHAMPOO_TRIAL_BEGINS_AT_STEP the last step at which a checkpoint of it may exist. It prints a line like
    {"step": 100, "metrics": {"validation_loss": 0.41}} for each measurement, optionally with "epoch" and "seconds";
    other keys are ignored, and other lines are shown. A metric of NaN, Infinity or null is not finite: if the command
    ends after such a measurement and before its last step, the trial has diverged, which is not an error. COMMAND gets
    SIGTERM when its trial is stopped or paused, when its job has ended, or when this agent is told to end; then the
    processes that it leaves running get it. It has no standard input. Exit status 0: the job hands out no more trials.
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
