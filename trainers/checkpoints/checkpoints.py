"""`Checkpoints`: saves a trial's state and loads the newest state that can be read."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainers.checkpoints import directory as files
from trainers.checkpoints import manifest as manifests
from trainers.checkpoints.communication import Channel, open_channel
from trainers.checkpoints.errors import CheckpointMismatch, CheckpointNotWritten, Damaged
from trainers.checkpoints.manifest import Manifest
from trainers.checkpoints.nested import LikeParameter, PerRank, flatten, merge, paths, unflatten
from trainers.checkpoints.plan import (
    StoredTensors,
    WritePlan,
    describe_tensors,
    file_name,
    local_plan,
    read_metadata,
    read_tensors,
    stage,
    write_plan,
)
from trainers.checkpoints.tensor_file import checksum_of, write_file
from trainers.config import Measurement, TrialConfig
from trainers.distributed import RankContext

logger = logging.getLogger(__name__)

T = TypeVar("T")

BACKGROUND_BYTES = 1 << 20
"""Of state over all ranks, from which on a checkpoint is written in the background."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A trial as it was right after a measurement."""

    measurement: Measurement
    progress: Any
    """As given to `save`."""
    random_state: Any
    """This rank's, as given to `save`; None if the world size was another."""
    world_size: int
    """When it was saved."""
    state: Any
    """As given to `save`: the same nesting, with tensors laid out as the template's. Tensors that are not sharded are
    on the CPU."""
    skipped: list[str] = field(default_factory=list)
    """Newer checkpoints that could not be read, and why: `step-00000040: ...`."""


class Checkpoints:
    """The checkpoints of one trial; all ranks call every method, in the same order and with the same arguments.

    The state is nested dicts, lists and tuples; its leaves are plain values and tensors. A DTensor is sharded as it
    says. Any other leaf is equal on all ranks that have it; an entry of a dict may be there on some ranks only. What
    each rank has of its own under the same name is wrapped in `PerRank`.

    Nothing is shared with training: collectives have a process group of their own, and a state of 1 MiB or more, or on
    CUDA devices, is copied, then written in the background while training goes on.
    """

    def __init__(self, directory: Path, *, config: TrialConfig, context: RankContext, num_kept: int) -> None:
        """`directory` is the same, shared one on all ranks; the newest `num_kept` checkpoints in it are kept."""
        if num_kept < 1:
            raise ValueError(f"num_kept must be at least 1, got {num_kept}")
        self._directory = directory
        self._config = config
        self._context = context
        self._num_kept = num_kept
        self._on_cuda = context.device.startswith("cuda")
        self._damaged: set[str] = set()
        self._described: tuple[Any, ...] | None = None
        self._plan: WritePlan | None = None
        self._data = torch.empty(0, dtype=torch.uint8)
        self._under_way: Future[None] | None = None

    def save(self, state: Any, *, measurement: Measurement, random_state: Any, progress: Any) -> None:
        """Saves a trial's state; returns when `state` may change again, which can be before it is on disk.

        `random_state` is this rank's own; `progress` is equal on all ranks. Only tensors and plain values in either.

        Raises:
            CheckpointNotWritten: on all ranks, if any rank could not write this checkpoint, or the one before it that
                was written in the background; earlier ones are still there.
            ValueError: a leaf of the state is neither a tensor nor a plain value, or ranks disagree on one.
        """
        self.wait()
        channel = open_channel(self._context)
        whole = {"state": state, "progress": progress, "random_state": PerRank(random_state)}
        tensors, structure = flatten(whole, rank=channel.rank)
        described = describe_tensors(tensors)
        num_bytes = sum(tensor.numel() * tensor.itemsize for tensor in tensors.values())

        # One exchange: does any rank's plan change, the name of the directory, and how much there is to write.
        token = secrets.randbits(62) if channel.rank == 0 else 0
        error = self._start(measurement.step, token) if channel.rank == 0 else None
        mine = [int(described != self._described), token, int(error is not None), num_bytes]
        num_changed, token, num_failed, num_bytes = channel.run(lambda: channel.sums(mine))
        if num_failed:
            raise self._not_written(measurement.step, channel.run(lambda: channel.gather(error)))
        if num_changed:
            plans = channel.run(lambda: channel.gather(local_plan(tensors)))
            self._plan = write_plan(plans, rank=channel.rank)
            self._described = described
            self._data = torch.empty(self._plan.layout.num_bytes, dtype=torch.uint8, pin_memory=self._on_cuda)
        assert self._plan is not None
        stage(self._plan, tensors, self._data)
        copied = torch.cuda.current_stream(self._context.device).record_event() if self._on_cuda else None
        unfinished = files.partial_path(self._directory, step=measurement.step, token=token)
        plan = self._plan

        def write() -> None:
            if copied is not None:
                copied.synchronize()
            self._write(channel, plan, unfinished, structure, measurement)

        if self._on_cuda or num_bytes >= BACKGROUND_BYTES:
            self._under_way = channel.submit(write)
        else:
            channel.run(write)

    def wait(self) -> None:
        """Returns when every checkpoint that was saved is on disk.

        Raises:
            CheckpointNotWritten: on all ranks, if the one written in the background could not be.
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
        """
        self.wait()
        channel = open_channel(self._context)
        whole = {"state": template}
        mine = set(paths(whole))
        seen = [path.name for path in files.newest_first(self._directory)]
        everyone = channel.run(lambda: channel.gather((seen, mine)))
        if any(names != seen for names, _ in everyone):
            found = [names for names, _ in everyone]
            raise RuntimeError(f"the ranks see different checkpoints in {self._directory}: {found}; is it shared?")
        elsewhere = set().union(*(entries for _, entries in everyone)) - mine
        skipped: list[str] = []
        for name in seen:
            path = self._directory / name
            try:
                manifest = self._together(channel, partial(self._verified, path, channel))
                content = self._together(channel, partial(self._read, path, manifest, whole, elsewhere))
            except Damaged as damage:
                skipped.append(f"{name}: {damage}")
                self._damaged.add(name)
                if channel.rank == 0:
                    logger.warning("checkpoint %s is damaged (%s); trying the one before it", path, damage)
                continue
            return Restored(
                measurement=Measurement(**manifest.measurement),
                progress=content["progress"],
                random_state=content["random_state"],
                world_size=manifest.world_size,
                state=content["state"],
                skipped=skipped,
            )
        return None

    def _start(self, step: int, token: int) -> str | None:
        """What went wrong, if anything."""
        try:
            files.start(self._directory, files.partial_path(self._directory, step=step, token=token))
        except OSError as error:
            return str(error)
        return None

    def _not_written(self, step: int, errors: list[str | None]) -> CheckpointNotWritten:
        reasons = "; ".join(f"rank {rank}: {error}" for rank, error in enumerate(errors) if error is not None)
        return CheckpointNotWritten(f"checkpoint of step {step} in {self._directory}: {reasons}")

    def _write(
        self, channel: Channel, plan: WritePlan, unfinished: Path, structure: Any, measurement: Measurement
    ) -> None:
        error, checksum = None, ""
        try:
            checksum = write_file(unfinished / file_name(channel.rank), plan.layout.header, self._data)
        except Exception as caught:  # noqa: BLE001  # the other ranks wait for this one's outcome, whatever it is
            error = f"{caught}" if isinstance(caught, OSError) else f"{type(caught).__name__}: {caught}"
        reports = channel.gather((error, checksum, structure))
        errors = [error for error, _, _ in reports]
        if any(error is not None for error in errors):
            if channel.rank == 0:
                files.discard(unfinished)
            raise self._not_written(measurement.step, errors)
        disagreement = None
        if channel.rank == 0:
            try:
                content = manifests.encode(
                    measurement=measurement,
                    world_size=channel.world_size,
                    config=self._config,
                    structure=merge([structure for _, _, structure in reports]),
                    files={file_name(rank): checksum for rank, (_, checksum, _) in enumerate(reports)},
                    tensors_json=plan.tensors_json,
                )
                files.finish(
                    self._directory,
                    unfinished,
                    content,
                    step=measurement.step,
                    num_kept=self._num_kept,
                    damaged=self._damaged,
                )
            except ValueError as caught:
                disagreement = str(caught)
            except OSError as caught:
                error = str(caught)
            if error is not None or disagreement is not None:
                files.discard(unfinished)
        error, disagreement = channel.from_rank_0((error, disagreement))
        if disagreement is not None:
            raise ValueError(disagreement)
        if error is not None:
            raise self._not_written(measurement.step, [error])
        self._damaged.clear()

    def _together(self, channel: Channel, function: Callable[[], T]) -> T:
        """What the function gives on this rank, if it succeeds on all; else all raise the same."""
        result, damage, mismatch = None, None, None
        try:
            result = function()
        except Damaged as caught:
            damage = str(caught)
        except CheckpointMismatch as caught:
            mismatch = str(caught)
        except (OSError, KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as caught:
            damage = f"{type(caught).__name__}: {caught}"
        outcomes = channel.run(lambda: channel.gather((damage, mismatch)))
        for _, reason in outcomes:
            if reason is not None:
                raise CheckpointMismatch(reason)
        damages = dict.fromkeys(reason for reason, _ in outcomes if reason is not None)
        if damages:
            raise Damaged("; ".join(damages))
        assert result is not None
        return result

    def _verified(self, path: Path, channel: Channel) -> Manifest:
        """The manifest, after this rank's share of the files has been compared with it."""
        try:
            content = (path / files.MANIFEST).read_bytes()
        except FileNotFoundError:
            raise Damaged(f"{files.MANIFEST} is missing") from None
        manifest = manifests.decode(content, where=str(path))
        manifests.require_same_config(str(path), written=manifest.config, config=self._config)
        for index, (name, checksum) in enumerate(manifest.files.items()):
            if index % channel.world_size != channel.rank:
                continue
            if not (path / name).is_file():
                raise Damaged(f"{name} is missing")
            if checksum_of(path / name) != checksum:
                raise Damaged(f"{name} does not have the checksum in {files.MANIFEST}")
        return manifest

    def _read(self, path: Path, manifest: Manifest, template: Mapping[str, Any], elsewhere: set[str]) -> Any:
        stored = read_metadata(manifest.tensors)
        targets: dict[str, Tensor] = {}

        def target(name: str, like: Any) -> Tensor:
            targets[name] = _target(name, like, stored, path)
            return targets[name]

        same_world_size = manifest.world_size == self._context.world_size
        content = unflatten(
            manifest.structure,
            template=template,
            rank=self._context.rank if same_world_size else None,
            is_wanted=lambda name: name not in elsewhere,
            tensor=target,
        )
        read_tensors(path, stored, targets)
        return content


def _target(name: str, like: object, stored: StoredTensors, path: Path) -> Tensor:
    """Memory for a stored tensor, laid out as what the template has in its place."""
    metadata: Any = stored.metadata.state_dict_metadata[name]
    size, dtype = metadata.size, metadata.properties.dtype
    if isinstance(like, LikeParameter):
        like = like.parameter if like.parameter.shape == size else None
    elif isinstance(like, Tensor) and (like.shape != size or like.dtype != dtype):
        there, here = f"{dtype} {tuple(size)}", f"{like.dtype} {tuple(like.shape)}"
        raise CheckpointMismatch(f"{path}: {name} is {there} there, {here} here")
    if isinstance(like, DTensor):
        local = torch.empty_like(like.to_local(), dtype=dtype, requires_grad=False)
        return DTensor.from_local(
            local, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )
    if isinstance(like, Tensor):
        return torch.empty_like(like, dtype=dtype, device="cpu", requires_grad=False)
    return torch.empty(size, dtype=dtype)
