"""States to save, ways to damage them, and functions for rank processes that use checkpoints in tests."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from shampoo import Shampoo, WeightAveraging
from shampoo.distributed.block_rows import BlockRows
from tests.support.file_size_limit import files_end_at
from trainers.checkpoints import (
    CheckpointMismatch,
    CheckpointNotWritten,
    Checkpoints,
    PerRank,
    Restored,
    load_optimizer_state,
    optimizer_state,
    optimizer_template,
    random_state,
)
from trainers.checkpoints.communication import open_channel
from trainers.config import Measurement, OptimizerConfig, TrialConfig
from trainers.ranks.context import RankContext, join_process_group, process_group_context, single_process_context
from trainers.storage import Place

OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, betas=(0.9, 0.95)),
    "amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.01), amsgrad=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "plain_sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "shampoo": lambda parameters: Shampoo(parameters, lr=0.01, precondition_frequency=2),
    # Ranks own blocks of each parameter, also of plain ones.
    "shampoo_blocks": lambda parameters: Shampoo(
        parameters, lr=0.01, precondition_frequency=2, max_preconditioner_dim=4, distributed="lossless"
    ),
    "ema": lambda parameters: WeightAveraging(torch.optim.AdamW(parameters), "ema", decay=0.9),
    "lawa": lambda parameters: WeightAveraging(Shampoo(parameters), "lawa", num_snapshots=3, update_frequency=1),
    "schedule_free": lambda parameters: WeightAveraging(torch.optim.SGD(parameters, lr=0.01), "schedule_free"),
}


def config(**fields: Any) -> TrialConfig:
    return TrialConfig(
        **{
            "workload": "digits-mlp",
            "optimizer": OptimizerConfig("adamw", {"lr": 0.01}),
            "num_steps": 40,
            "evaluate_every": 10,
            "batch_size": 48,
            **fields,
        }
    )


def context_of(world_size: int) -> RankContext:
    return single_process_context() if world_size == 1 else process_group_context()


def checkpoints(
    directory: Place, context: RankContext | None = None, *, num_kept: int = 2, **fields: Any
) -> Checkpoints:
    context = context or single_process_context()
    return Checkpoints(directory, config=config(**fields), context=context, num_kept=num_kept)


def measurement(step: int) -> Measurement:
    return Measurement(step=step, epoch=step / 30, seconds=0.1 * step, metrics={"train_loss": 1 / step})


def small_state(step: int) -> dict[str, Any]:
    return {"model": {"weight": torch.full((50, 50), float(step)), "bias": torch.arange(7)}, "schedule": {"step": step}}


def start_to_save(to: Checkpoints, step: int, state: Any = None, context: RankContext | None = None) -> None:
    to.save(
        small_state(step) if state is None else state,
        measurement=measurement(step),
        random_state=random_state(context or single_process_context()),
        progress={"best": 1 / step},
    )


def save(to: Checkpoints, step: int, state: Any = None, context: RankContext | None = None) -> None:
    """Saves a state and waits for it."""
    start_to_save(to, step, state, context)
    to.wait()


def newest_step(directory: Place) -> int | None:
    restored = checkpoints(directory).load(small_state(1))
    return None if restored is None else restored.measurement.step


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def replace_file(checkpoint: Path, name: str, content: bytes) -> None:
    """Replaces a file with tensors, and its checksum in the manifest."""
    (checkpoint / name).write_bytes(content)
    change_manifest(checkpoint, lambda manifest: manifest["files"].update({name: hashlib.sha256(content).hexdigest()}))


def change_manifest(checkpoint: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes what the manifest says, and its own checksum."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())["manifest"]
    change(manifest)
    text = json.dumps(manifest)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    (checkpoint / "manifest.json").write_text(f'{{"manifest": {text}, "sha256": "{checksum}"}}\n')


class Training:
    """A small model and its optimizer, plain with one rank or unless sharded."""

    def __init__(self, optimizer: str, *, seed: int = 0, mode: str = "ddp", dtype: torch.dtype = torch.float32) -> None:
        torch.manual_seed(seed)
        # Sizes that two, three and four ranks cannot share evenly, so that some get nothing.
        self.model = nn.Sequential(nn.Linear(9, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).to(dtype)
        if mode == "fsdp2":
            fully_shard(self.model)
        if mode == "hsdp":
            size = dist.get_world_size()
            fully_shard(self.model, mesh=init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard")))
        self.optimizer = OPTIMIZERS[optimizer](list(self.model.parameters()))

    def steps(self, num_steps: int) -> None:
        """The same on every rank."""
        for step in range(num_steps):
            x = torch.linspace(-1, 1, 54).view(6, 9) * (step + 1)
            self.optimizer.zero_grad()
            self.model(x.to(next(self.model.parameters()).dtype)).square().sum().backward()
            self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"model": dict(self.model.state_dict()), "optimizer": optimizer_state(self.optimizer)}

    def template(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": optimizer_template(self.optimizer)}

    def load(self, restored: Restored) -> None:
        self.model.load_state_dict(restored.state["model"])
        load_optimizer_state(self.optimizer, restored.state["optimizer"])


def whole(state: Any) -> Any:
    """The state of all ranks, gathered and copied; they call it together."""
    state = _without_dtensors(state)
    if not dist.is_initialized():
        return state
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, state)
    return _assembled(of_ranks)


def _assembled(parts: list[Any]) -> Any:
    """One value from those of the ranks at one place: the entries of all, all rows of a tensor, else the value of the
    first rank."""
    first = parts[0]
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for part in parts for key in part)
        return {key: _assembled([part[key] for part in parts if key in part]) for key in keys}
    if not isinstance(first, BlockRows):
        return first
    rows = {start + row: x for part in parts for start, piece in part.pieces for row, x in enumerate(piece)}
    return torch.stack([rows[row] for row in range(first.rows.total)])


def _without_dtensors(state: Any) -> Any:
    match state:
        case DTensor():
            return state.full_tensor().clone()
        case Tensor():
            return state.clone()
        case Mapping():
            return {key: _without_dtensors(value) for key, value in state.items()}
        case list() | tuple():
            return type(state)(_without_dtensors(value) for value in state)
        case _:
            return state


def train_and_save(directory: Place, optimizer: str, mode: str, world_size: int) -> Any:
    """The saved state, whole, on this rank."""
    context = context_of(world_size)
    training = Training(optimizer, mode=mode)
    training.steps(3)
    to = checkpoints(directory, context)
    save(to, 10, training.state(), context)
    return whole(training.state())


def load_and_gather(directory: Place, optimizer: str, mode: str, world_size: int) -> tuple[Any, list[str], int]:
    """The whole state of a new trial with other weights after loading; the names of sharded entries; the rank of the
    RNG."""
    context = context_of(world_size)
    training = Training(optimizer, seed=1, mode=mode)
    restored = checkpoints(directory, context).load(training.template())
    assert restored is not None
    assert (restored.random_state is not None) == (restored.world_size == world_size)
    training.load(restored)
    parameters = dict(training.model.named_parameters())
    sharded = [name for name, parameter in parameters.items() if isinstance(parameter, DTensor)]
    is_ours = isinstance(getattr(training.optimizer, "optimizer", training.optimizer), Shampoo)
    for parameter, state in ({} if is_ours else training.optimizer.state).items():
        for name, value in state.items():
            assert isinstance(value, DTensor) == (isinstance(parameter, DTensor) and value.dim() > 0), name
            if isinstance(value, DTensor):
                assert isinstance(parameter, DTensor)
                assert value.placements == parameter.placements
    state = whole(training.state())
    training.steps(1)  # the loaded state can be trained
    return state, sharded, restored.world_size


def own_entries_are_loaded_where_the_template_has_them(directory: Path, owners: list[int]) -> Any:
    """Each rank saves the entry that it owns, then loads one that another rank owned, and also entries that only it
    has."""
    context = process_group_context()
    state = {
        "factors": {
            f"factor-{context.rank}": {"matrix": torch.full((2, 2), float(context.rank)), "count": context.rank}
        },
        "everywhere": {"late": torch.ones(3)},
        "residual": PerRank({"error": torch.full((context.rank + 1,), 7.0), "rank": context.rank}),
    }
    save(checkpoints(directory, context), 10, state, context)
    template = {"factors": {f"factor-{owners[context.rank]}": {"matrix": torch.zeros(2, 2), "count": 0}}}
    restored = checkpoints(directory, context).load(template)
    assert restored is not None
    return restored.state


def save_on_full_disk(directory: Path, failing: int) -> tuple[str, str, list[int]]:
    """The errors when one rank cannot write, at the next save and at `wait`; and the steps that load after them."""
    context = process_group_context()
    to = checkpoints(directory, context)
    save(to, 10, context=context)
    errors, steps = [], []
    for step in (20, 30):
        save(to, step, context=context)
        with files_end_at(1000) if context.rank == failing else nullcontext():
            start_to_save(to, 90, context=context)
            open_channel(context).finish_submitted()
        try:
            if step == 20:
                start_to_save(to, 95, context=context)
            else:
                to.wait()
        except CheckpointNotWritten as error:
            errors.append(str(error))
        restored = to.load(small_state(1))
        assert restored is not None
        steps.append(restored.measurement.step)
    return errors[0], errors[1], steps


def save_without_a_directory(directory: Path) -> str:
    """The error if rank 0 cannot make the directory, because a file has its name."""
    context = process_group_context()
    try:
        save(checkpoints(directory / "file", context), 10, context=context)
    except CheckpointNotWritten as error:
        return str(error)
    return ""


def save_what_differs(directory: Path) -> list[str]:
    """The errors about states that differ between ranks, and the step that can be saved after them."""
    context = process_group_context()
    rank = context.rank
    to = checkpoints(directory, context)
    errors = []
    states: list[Any] = [
        {"count": rank},
        {"list": [0] * (rank + 1)},
        {"mixed": {} if rank else 1.0},
        {"tensor": torch.zeros(rank + 1)},
        {"tensor": torch.zeros(2, dtype=torch.float64 if rank else torch.float32)},
        {"bad": object() if rank else 1},
    ]
    for state in states:
        try:
            save(to, 10, state, context)
        except ValueError as error:
            errors.append(str(error))
    save(to, 20, {"count": float("nan")}, context)
    return [*errors, *sorted(names(directory))]


def load_on_all(directory: Path, fields: Mapping[str, Any]) -> tuple[int | None, list[str], str]:
    """The step that this rank loads, the skipped checkpoints, and the error."""
    context = process_group_context()
    try:
        restored = checkpoints(directory, context, **fields).load(small_state(1))
    except (CheckpointMismatch, RuntimeError) as error:
        return None, [], f"{type(error).__name__}: {error}"
    return (None, [], "") if restored is None else (restored.measurement.step, restored.skipped, "")


def load_where_each_rank_has_its_own(directory: Path) -> tuple[int | None, list[str], str]:
    return load_on_all(directory / str(process_group_context().rank), {})


def save_steps(directory: Place, steps: list[int]) -> None:
    context = process_group_context()
    to = checkpoints(directory, context)
    for step in steps:
        save(to, step, context=context)


def train_while_two_trials_save(directory: Path) -> list[float]:
    """Sums over ranks, taken quickly while checkpoints of two trials are being written."""
    context = process_group_context()
    one, other = checkpoints(directory / "one", context), checkpoints(directory / "other", context)
    sums = []
    for step in range(1, 16):
        for to in (one, other):
            start_to_save(to, step, context=context)
            for _ in range(5):
                value = torch.tensor(float(context.rank + step))
                dist.all_reduce(value)
                sums.append(value.item())
    one.wait()
    other.wait()
    for to in (other, one):
        restored = to.load(small_state(1))
        assert restored is not None
        assert restored.measurement.step == 15
    return sums


def save_until_killed(directory: Path, rank: int, world_size: int, meeting_point: Path, killed: int) -> None:
    """Runs a rank process: it saves once normally; then one rank is killed while it writes its file."""
    torch.set_num_threads(1)
    join_process_group(rank=rank, world_size=world_size, init_method=f"file://{meeting_point}", timeout_seconds=60)
    context = process_group_context()
    to = checkpoints(directory, context)
    save(to, 10, context=context)
    save(to, 20, context=context)
    if rank == killed:
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    try:
        save(to, 30, context=context)
    except RuntimeError:
        os._exit(3)  # normally the rank would leave the group, and wait there for the one that is gone
    os._exit(4)
