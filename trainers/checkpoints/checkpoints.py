"""`Checkpoints`: saves a trial's state and loads the newest state that can be read."""

from __future__ import annotations

import logging
import secrets
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainers.checkpoints.backends import trial_files
from trainers.checkpoints.communication import open_channel
from trainers.checkpoints.errors import Damaged
from trainers.checkpoints.nested import PerRank, flatten, paths
from trainers.checkpoints.plan import WritePlan, describe_tensors, local_plan, stage, write_plan
from trainers.checkpoints.reading import read, together, verify
from trainers.checkpoints.writing import Staged, WriteFailure, raise_if_any, write
from trainers.config import Measurement, TrialConfig
from trainers.ranks.context import RankContext
from trainers.storage import Place, StoreFailed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """A trial as it was right after a measurement."""

    measurement: Measurement
    progress: Any
    """The progress that was given to `save`."""
    random_state: Any
    """This rank's, as given to `save`; None if the world size was another."""
    world_size: int
    """Number of ranks that saved it."""
    state: Any
    """The state that was given to `save`: the same nesting, with tensors laid out as the template's. Tensors that are
    not sharded are on the CPU."""
    skipped: list[str] = field(default_factory=list)
    """Newer checkpoints that could not be read, and why: `step-00000040: ...`."""


class Checkpoints:
    """The checkpoints of one trial; all ranks call every method, in the same order and with the same arguments.

    The state is nested dicts, lists and tuples; its leaves are plain values and tensors. A DTensor is sharded as it
    says, and `BlockRows` are rows of a tensor of which other ranks have the rest. Any other leaf is equal on all ranks
    that have it; an entry of a dict may be there on some ranks only. What each rank has of its own under the same name
    is wrapped in `PerRank`.

    A checkpoint is written while training goes on, from a copy on the host of what this rank writes; collectives have a
    process group of their own. It is complete when the next is saved, or when `wait` returns: to be called before the
    trial's last word and before the process leaves the group.
    """

    def __init__(self, place: Place, *, config: TrialConfig, context: RankContext, num_kept: int) -> None:
        """`place` is the same, shared one on all ranks; the newest `num_kept` checkpoints in it are kept.

        Raises:
            StoreFailed: the place is a store that pyarrow cannot use.
        """
        if num_kept < 1:
            raise ValueError(f"num_kept must be at least 1, got {num_kept}")
        self._place = place
        self._files = trial_files(place)
        self._config = config
        self._context = context
        self._num_kept = num_kept
        self._on_cuda = context.device.startswith("cuda")
        self._damaged: set[str] = set()
        self._described: tuple[Any, ...] | None = None
        self._plan: WritePlan | None = None
        # Kept from one checkpoint to the next: to allocate and touch it costs as much as the copy.
        self._data = torch.empty(0, dtype=torch.uint8)
        self._under_way: Future[None] | None = None

    def save(self, state: Any, *, measurement: Measurement, random_state: Any, progress: Any) -> None:
        """Copies a trial's state and starts to write it; the state may change again at once.

        `random_state` is this rank's own; `progress` is equal on all ranks. Only tensors and plain values in either.

        Raises:
            CheckpointNotWritten: on all ranks, if any rank could not write the checkpoint before this one, or start
                this one; earlier ones are still there.
            ValueError: on all ranks, if a leaf of the state is neither a tensor nor a plain value, or if ranks
                disagree on one.
        """
        self.wait()
        channel = open_channel(self._context)
        step = measurement.step
        token = secrets.randbits(62) if channel.rank == 0 else 0
        tensors: dict[str, Tensor] = {}
        structure: Any = None

        def prepare() -> None:
            nonlocal tensors, structure
            whole = {"state": state, "progress": progress, "random_state": PerRank(random_state)}
            tensors, structure = flatten(whole, rank=channel.rank)
            if channel.rank == 0:
                self._files.start(step, token)

        failure = WriteFailure.of(prepare)
        described = describe_tensors(tensors)
        # One small exchange per checkpoint: did any rank fail, does its plan change, and the token.
        mine = [int(failure is not None), int(described != self._described), token]
        num_failed, num_changed, token = channel.run(lambda: channel.sums(mine))
        if num_failed:
            raise_if_any(channel.run(lambda: channel.gather(failure)), step=step, place=self._place)
        if num_changed or self._plan is None:
            plans = channel.run(lambda: channel.gather(local_plan(tensors)))
            self._plan, self._described = write_plan(plans, rank=channel.rank), described
        plan = self._plan

        def copy() -> None:
            if len(self._data) != plan.layout.num_bytes:
                self._data = torch.empty(plan.layout.num_bytes, dtype=torch.uint8, pin_memory=self._on_cuda)
            stage(plan, tensors, self._data)

        failure = WriteFailure.of(copy)
        staged = Staged(
            plan=plan,
            data=self._data,
            failure=failure,
            copied=torch.cuda.current_stream(self._context.device).record_event() if self._on_cuda else None,
            structure=structure,
            measurement=measurement,
            config=self._config,
            place=self._place,
            token=token,
        )
        damaged, self._damaged = self._damaged, set()
        self._under_way = channel.submit(
            lambda: write(staged, channel, self._files, num_kept=self._num_kept, damaged=damaged),
        )

    def wait(self) -> None:
        """Returns when every checkpoint that was saved is complete.

        Raises:
            CheckpointNotWritten: on all ranks, if any rank could not write the last one; earlier ones are still there.
            ValueError: on all ranks, if plain values in it differ between ranks.
        """
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def load(self, template: Any) -> Restored | None:
        """The newest checkpoint that can be read, the same on all ranks, or None; those passed over are logged.

        The world size may be another than when it was saved. `template` is nested like the state and tells how to lay
        it out here: a tensor whose place in the template has a DTensor is sharded like it; one that has a
        `LikeParameter` there, or above, and is of that parameter's shape, is laid out like the parameter. An entry
        of a dict that is in the templates of some ranks only is loaded by those. All else is loaded by every rank.

        Raises:
            CheckpointMismatch: the checkpoint is of a trial with another config, or does not fit the template.
            RuntimeError: the ranks see different checkpoints, so the directory is not shared between them.
            StoreFailed: on all ranks, if any rank could not read for as long as it tried; nothing is lost by that.
        """
        self.wait()
        channel = open_channel(self._context)
        channel.finish_submitted()  # by a trial in the same place that was dropped
        whole = {"state": template}
        mine = set(paths(whole))
        seen: list[str] = []
        outage = None
        try:
            seen = self._files.newest_first()
        except StoreFailed as error:
            outage = str(error)
        everyone = channel.run(lambda: channel.gather((seen, mine, outage)))
        for _, _, reason in everyone:
            if reason is not None:
                raise StoreFailed(reason)
        if any(names != seen for names, _, _ in everyone):
            found = [names for names, _, _ in everyone]
            raise RuntimeError(f"the ranks see different checkpoints in {self._place}: {found}; is it shared?")
        elsewhere = set().union(*(entries for _, entries, _ in everyone)) - mine
        here: dict[str, Any] = {"rank": channel.rank, "world_size": channel.world_size}
        skipped: list[str] = []
        for name in seen:
            here["where"] = str(self._place / name)
            try:
                with self._files.reading(name) as checkpoint:
                    manifest = together(channel, partial(verify, checkpoint, config=self._config, **here))
                    fill = partial(read, checkpoint, manifest, template=whole, unwanted=elsewhere)
                    content = together(channel, partial(fill, **here))
            except Damaged as damage:
                skipped.append(f"{name}: {damage}")
                self._damaged.add(name)
                if channel.rank == 0:
                    logger.warning("checkpoint %s is damaged (%s); trying the one before it", here["where"], damage)
                continue
            return Restored(
                **content, measurement=manifest.measurement, world_size=manifest.world_size, skipped=skipped
            )
        return None
