"""Checkpoints of a trial: atomic to write, checked when read, exact to resume from at equal world size.

    checkpoints = Checkpoints(place, config=config, context=context, num_kept=2)
    template = {"model": model.state_dict(), "optimizer": optimizer_template(optimizer)}
    if (restored := checkpoints.load(template)) is not None:
        model.load_state_dict(restored.state["model"])
        load_optimizer_state(optimizer, restored.state["optimizer"])
    ...
    state = {"model": model.state_dict(), "optimizer": optimizer_state(optimizer)}
    checkpoints.save(state, measurement=measurement, random_state=random_state(context), progress=...)
    ...
    checkpoints.wait()

A checkpoint is a directory `step-00000040` with a file of tensors per rank and `manifest.json`, below a path that all
ranks see, where it has that name when it is complete; in a store (`trainers.storage`), `step-00000040-TOKEN`, which is
complete when its manifest is there. Tensors are in the safetensors format, all else is JSON: nothing in it could
execute code when it is read. Only the planners of `torch.distributed.checkpoint` are used, to deal out tensors to
ranks. Never where a place is, nor how a store is spoken to: that is in `trainers.storage`.
"""

from trainers.checkpoints.checkpoints import Checkpoints, Restored
from trainers.checkpoints.errors import (
    CheckpointMismatch,
    CheckpointMissing,
    CheckpointNotStored,
    CheckpointNotWritten,
)
from trainers.checkpoints.forking import fork_checkpoint
from trainers.checkpoints.nested import LikeParameter, PerRank
from trainers.checkpoints.optimizer_state import load_optimizer_state, optimizer_state, optimizer_template
from trainers.checkpoints.random_state import random_state, seed_random, set_random_state
from trainers.storage import StoreFailed

__all__ = [
    "CheckpointMismatch",
    "CheckpointMissing",
    "CheckpointNotStored",
    "CheckpointNotWritten",
    "Checkpoints",
    "LikeParameter",
    "PerRank",
    "Restored",
    "StoreFailed",
    "fork_checkpoint",
    "load_optimizer_state",
    "optimizer_state",
    "optimizer_template",
    "random_state",
    "seed_random",
    "set_random_state",
]
