"""One checkpoint written by all ranks: each its file, then rank 0 the manifest and the name that makes it valid."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.communication import Channel
from trainers.checkpoints.errors import CheckpointNotStored, CheckpointNotWritten
from trainers.checkpoints.nested import merge
from trainers.checkpoints.plan import WritePlan, file_name
from trainers.checkpoints.tensor_file import file_content
from trainers.checkpoints.trial_files import TrialFiles
from trainers.config import Measurement, TrialConfig
from trainers.storage import Place, StoreFailed
from trainers.storage.full_disks import lacks_room

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """The reason why a rank could not do its part."""

    reason: str
    is_callers_mistake: bool = False
    is_outage: bool = False
    """True: a store failed, or a disk has no room, which is nobody's mistake."""

    @classmethod
    def of(cls, action: Callable[[], object]) -> WriteFailure | None:
        """Calls the action; None: it did not fail. What it raises is kept: other ranks wait to hear of it."""
        try:
            action()
        except ValueError as error:
            return cls(str(error), is_callers_mistake=True)
        except StoreFailed as error:
            return cls(str(error), is_outage=True)
        except OSError as error:
            return cls(str(error), is_outage=lacks_room(error))
        except Exception as error:  # raised on all ranks, by `raise_if_any`
            logger.exception("a checkpoint failed")
            return cls(f"{type(error).__name__}: {error}")
        return None


def raise_if_any(failures: list[WriteFailure | None], *, step: int, place: Place) -> None:
    """Raises the same on every rank, given each rank's failure.

    Raises:
        ValueError: a rank was given a state that cannot be written.
        CheckpointNotStored: else, if a store or the room on a disk is all that failed.
        CheckpointNotWritten: else, if any rank failed.
    """
    failed = {rank: failure for rank, failure in enumerate(failures) if failure is not None}
    if failed:
        reasons = "; ".join(f"rank {rank}: {failure.reason}" for rank, failure in failed.items())
        message = f"checkpoint of step {step} in {place}: {reasons}"
        if any(failure.is_callers_mistake for failure in failed.values()):
            raise ValueError(message)
        if all(failure.is_outage for failure in failed.values()):
            raise CheckpointNotStored(message)
        raise CheckpointNotWritten(message)


@dataclass(frozen=True, slots=True)
class Staged:
    """A copy of what this rank writes of one checkpoint, and of what the manifest will say."""

    plan: WritePlan
    data: Tensor
    """(plan.layout.num_bytes,) uint8 on the CPU."""
    failure: WriteFailure | None
    """The reason why `data` could not be copied."""
    copied: torch.cuda.Event | None
    """The event until which `data` is still being copied from a CUDA device; None: it is not copied from one."""
    structure: Any
    """The nesting of this rank's state."""
    measurement: Measurement
    config: TrialConfig
    place: Place
    """The place of the trial's checkpoints."""
    token: int
    """Tells it from another of the same step, until it is complete."""


def write(staged: Staged, channel: Channel, files: TrialFiles, *, num_kept: int, damaged: Collection[str]) -> None:
    """Writes a checkpoint and deletes those that are too old; every rank returns when it is safely there.

    Raises:
        ValueError: the ranks were given plain values that differ.
        CheckpointNotWritten: on all ranks, if one could not write; earlier checkpoints are still there.
    """
    checksum, step = "", staged.measurement.step

    def write_own_file() -> None:
        nonlocal checksum
        if staged.copied is not None:
            staged.copied.synchronize()
        content = partial(file_content, staged.plan.layout.header, staged.data)
        checksum = files.write(step, staged.token, file_name(channel.rank), content)

    failure = staged.failure or WriteFailure.of(write_own_file)
    reports = channel.gather((failure, checksum, staged.structure))

    def complete() -> None:
        checksums = {file_name(rank): checksum for rank, (_, checksum, _) in enumerate(reports)}
        content = manifests.encode(
            measurement=staged.measurement,
            world_size=channel.world_size,
            config=staged.config,
            structure=merge([structure for _, _, structure in reports]),
            files=checksums,
            tensors_json=staged.plan.tensors_json,
        )
        files.finish(step, staged.token, content, others=checksums, num_kept=num_kept, damaged=damaged)

    failures = [failure for failure, _, _ in reports]
    if not any(failures):
        failures = [channel.from_rank_0(WriteFailure.of(complete) if channel.rank == 0 else None)]
    if any(failures) and channel.rank == 0:
        files.discard(step, staged.token)
    raise_if_any(failures, step=step, place=staged.place)
