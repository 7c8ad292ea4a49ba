"""Trains one config from the command line, alone or under torchrun.

    python -m trainers.run config.json
    torchrun --nproc-per-node 2 -m trainers.run config.json --checkpoint-directory checkpoints
    torchrun --nproc-per-node 4 -m trainers.run config.json --set parallelism.mode=fsdp2 --set seed=1
    torchrun --nproc-per-node 1 -m trainers.run '{"workload": "digits-mlp", ...}'

Rank 0 prints one JSON object per measurement. Exit status: 0 done, 2 an argument, the config or the checkpoint
directory is refused (the message names the field), 3 diverged, 4 another rank was lost (started again, the trial goes
on from its newest checkpoint), 1 a checkpoint or the weights could not be written, the batches ended, the workload
called sys.exit (whatever status it gave), or anything else, with a traceback.
Under torchrun these are the ranks' own statuses, which it reports; torchrun itself then ends with 1.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # what is imported stays: looking for garbage among it, now and at the end, takes a third of the start

import argparse
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

from trainers.arguments import count, set_at
from trainers.checkpoints import CheckpointMismatch, CheckpointNotWritten, StoreFailed
from trainers.config import Diverged, InvalidConfig, Json, TrialConfig
from trainers.loop import train
from trainers.parallel.teardown import leave_process_group
from trainers.ranks.context import (
    RankContext,
    is_torchrun,
    join_torchrun_group,
    process_group_context,
    single_process_context,
)
from trainers.ranks.lost_ranks import is_of_a_lost_rank
from trainers.storage import InvalidPlace, Place, place_of
from trainers.weights import check_weights_file, whole_weights, write_weights
from trainers.workload.batches import BatchesEnded
from trainers.workload.user_workload import explain

DONE = 0
FAILED = 1
REFUSED = 2
DIVERGED = 3
LOST = 4
"""All are exit statuses: 0 and 1 as of any command, 2 as argparse has it for wrong arguments, the others free ones. The
last tells whoever starts ranks that starting them again helps."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; gives the exit status."""
    options = parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(options.threads)
    try:
        config = read_config(options.config, options.set)
    except (InvalidConfig, OSError) as error:
        return _refuse(error)
    if options.device == "cuda" and not torch.cuda.is_available():
        return _refuse("--device cuda: torch finds no CUDA device on this machine")
    context = _join(options)
    try:
        if options.weights is not None:
            context = _with_weights(options.weights, config, context)
    except (ValueError, OSError) as error:  # now, and not after the training
        status = _refuse(f"--weights: {error}")
    else:
        status = _train(config, context)
    if status == LOST or (status == REFUSED and context.world_size > 1):
        _end_at_once(status)  # data may be missing on one machine alone
    # Not in a `finally`: a rank that fails in its own way must not wait for the others.
    leave_process_group()
    return status


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of the command line; None: this process's. Wrong ones end the process with status 2."""
    return _parser().parse_args(arguments)


def _train(config: TrialConfig, context: RankContext) -> int:
    try:
        for measurement in train(config, context):
            if context.rank == 0:
                sys.stdout.write(json.dumps(asdict(measurement)) + "\n")
                sys.stdout.flush()
    except Diverged as diverged:
        if context.rank == 0:
            sys.stderr.write(f"{diverged}\n")
        return DIVERGED
    except (InvalidConfig, CheckpointMismatch) as error:
        return _refuse(error)
    except (CheckpointNotWritten, StoreFailed, BatchesEnded, _WeightsNotWritten) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    except RuntimeError as error:
        if not is_of_a_lost_rank(error):
            raise
        sys.stderr.write(f"rank {context.rank} lost another rank: {error}\n")
        return LOST
    except SystemExit as left:  # raised by a workload's own code alone, and silent if it went on
        sys.stderr.write(f"rank {context.rank} failed in code of the workload: {explain(left)}\n")
        if context.world_size > 1:
            _end_at_once(FAILED)
        return FAILED
    return DONE


def _end_at_once(status: int) -> NoReturn:
    """Ends the process as it is: leaving in good order would wait for a rank that is lost, or that goes on."""
    sys.stdout.flush()
    os._exit(status)


class _WeightsNotWritten(Exception):
    """The file of weights could be written before the training, and cannot any more."""


def _with_weights(path: Path, config: TrialConfig, context: RankContext) -> RankContext:
    """The context with a hearer that writes the weights of the trained model, on rank 0.

    Raises:
        ValueError: safetensors is not installed.
        OSError: the file cannot be written.
    """

    def write(model: nn.Module) -> None:
        weights = whole_weights(model)
        if context.rank != 0:
            return
        metadata = {"workload": config.workload, "seed": str(config.seed), "num_steps": str(config.num_steps)}
        try:
            write_weights(path, weights, metadata=metadata)
        except OSError as error:
            raise _WeightsNotWritten(f"the weights cannot be written to {path}: {error}") from error

    if context.rank == 0:
        check_weights_file(path)
    return dataclasses.replace(context, on_trained=write)


def _join(options: argparse.Namespace) -> RankContext:
    if is_torchrun():
        device = join_torchrun_group(device_type=options.device, timeout_seconds=options.timeout)
        return process_group_context(device=device, checkpoint_directory=options.checkpoint_directory)
    return single_process_context(
        device="cuda:0" if options.device == "cuda" else options.device,
        checkpoint_directory=options.checkpoint_directory,
    )


def read_config(given: str, changes: Sequence[tuple[str, Json]]) -> TrialConfig:
    """The config in a file, or in the argument itself where that begins with a brace, with the changes of the command
    line.

    Raises:
        InvalidConfig: it is none, or none any more with a change; the message names the field.
        OSError: it cannot be read.
    """
    is_json = given.lstrip().startswith("{")
    source = "config" if is_json else given
    try:
        try:
            data = json.loads(given if is_json else Path(given).read_bytes())
        except ValueError as error:
            raise InvalidConfig(source, f"is not JSON: {error}") from error
        for field, value in changes:
            set_at(data, field, value)
        return TrialConfig.from_json(data)
    except RecursionError as error:
        raise InvalidConfig(source, "is nested too deeply") from error


def _change(text: str) -> tuple[str, Json]:
    field, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIELD=VALUE")
    try:
        return field, json.loads(value)
    except RecursionError:
        raise argparse.ArgumentTypeError(f"the value of {field} is nested too deeply") from None
    except ValueError:
        return field, value


def _place(text: str) -> Place:
    try:
        return place_of(text)
    except InvalidPlace as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _refuse(error: Exception | str) -> int:
    sys.stderr.write(f"refused: {error}\n")
    return REFUSED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.run",
        description="Trains one config and prints one JSON object per measurement.",
        epilog="Exit status: 0 done, 2 config refused, 3 diverged, 4 another rank lost, 1 any other failure.",
    )
    parser.add_argument("config", help="JSON file with a trial config, or the JSON itself")
    parser.add_argument(
        "--set",
        type=_change,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change a field, e.g. optimizer.arguments.lr=0.01; VALUE is JSON or else a word; may be repeated",
    )
    parser.add_argument(
        "--checkpoint-directory",
        type=_place,
        help="write checkpoints here, and resume from them: a path, or a URI such as s3://bucket/prefix",
    )
    parser.add_argument(
        "--weights",
        type=Path,
        metavar="FILE",
        help="write the trained weights, those that were evaluated, as safetensors at the end",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument("--threads", type=count, default=1, help="CPU threads of each rank (default: 1)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait for another rank (default: 300)")
    return parser


if __name__ == "__main__":
    gc.freeze()
    gc.enable()
    sys.exit(main())
