"""Checks of the optimizer on the device: against the float64 reference, without a host read, on ranks."""

from __future__ import annotations

import functools
import tempfile
import traceback
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shampoo import Shampoo
from shampoo.hyperparameters import unused
from tests.benchmarks.steps.contestants import NEVER, Contestant, GradientSource, parameters, set_period
from tests.benchmarks.steps.step_counts import count
from tests.gpu import ranks, training
from tests.gpu.results import Comparison, HostReads, SuiteTests
from tests.gpu.runner import Task
from tests.gpu.syncs import syncs_are_errors
from tests.support.shampoo import sharded
from tests.support.shampoo.deviations import FLOAT32, OPTIONS, combinations, deviation, solver_on
from tests.support.shampoo.members import MEMBERS, REPRESENTATIVES, member
from tests.support.shampoo.settings import DEFAULTS, SHAPES, settings
from tests.support.trainers.ranks import WarmRanks

IN_FLOAT32 = "against the reference, in float32"
IN_FLOAT64 = "against the reference, in float64"
LIKE_CPU = "as far from the reference as the CPU"
READS = "steps without a host read"
RANKS = "ranks like one process"
SUITE = "tests marked gpu"
ROOT = Path(__file__).parents[2]
FLOAT64_LIMIT = 1e-9
"""As `test_against_reference` has it."""
WITHOUT_HOST_READS = ("shampoo_adam", "soap", "kl", "spectral", "adam", "shampoo_none", "shampoo_by_cholesky_qr")
RANK_STEPS = 12
RANK_MEMBERS = ("shampoo_adam", "soap", "kl", "spectral", "adam")
RANK_LIMIT = 1e-4
"""Of weights, relative to the largest of a tensor, after some steps on gradients that ranks average another way."""


def tasks(device: str, *, is_tiny: bool) -> list[Task]:
    """The figures of this stage, what is used most and what costs least first."""
    num_steps = 4 if is_tiny else 50
    found = [Task(IN_FLOAT32, name, _float32, (name, device, num_steps)) for name in FLOAT32]
    reads = WITHOUT_HOST_READS[:5] if is_tiny else tuple(dict.fromkeys((*WITHOUT_HOST_READS, *REPRESENTATIVES)))
    found += [Task(READS, name, host_reads, (name, device)) for name in reads if _only_queues(name)]
    found += _rank_tasks(device, is_tiny=is_tiny)
    found += training.tasks(device, is_tiny=is_tiny)
    found += [Task(SUITE, "all", suite_tests, (device,), limit_seconds=240, is_alone=True)]
    rows = REPRESENTATIVES if is_tiny else tuple(MEMBERS)
    found += [Task(LIKE_CPU, name, _like_the_cpu, (name, device, 4 if is_tiny else 12)) for name in rows]
    for preconditioner in OPTIONS:
        pairs = list(combinations(preconditioner))[: 2 if is_tiny else None]
        found += [Task(IN_FLOAT64, name, _float64, (config, device, num_steps)) for name, config in pairs]
    return found


def _float32(name: str, device: str, num_steps: int) -> Comparison:
    choices, limit = FLOAT32[name]
    return Comparison(deviation(settings(**choices), _shapes(), torch.float32, num_steps, device=device), limit)


def _float64(config: dict[str, Any], device: str, num_steps: int) -> Comparison:
    return Comparison(deviation(config, _shapes(), torch.float64, num_steps, device=device), FLOAT64_LIMIT)


def _like_the_cpu(name: str, device: str, num_steps: int) -> Comparison:
    """A row of `members` in float32: no further from the reference than on the CPU with the same solver.

    Rows in low precision, or that leave out refreshes, follow a recurrence that the reference does not know; but on
    every device they depart from it by about as much.
    """
    # More damping than the defaults: what float32 makes of null eigenvalues is the device's own.
    own = member(name, epsilon=1e-2 if name.startswith("kl") else 1e-4)
    config = {**DEFAULTS, **own}
    at_home = {**config, "solver": solver_on(config, device)} if _has_solver(config) else config
    expected = deviation(at_home, _shapes(), torch.float32, num_steps)
    found = deviation(config, _shapes(), torch.float32, num_steps, device=device)
    return Comparison(found, 4 * expected + 2e-5)


def host_reads(name: str, device: str) -> HostReads:
    """Reads in ordinary steps and in such that refresh everything, of a member that should only queue work.

    Without a device, ordinary steps on meta tensors, which take an accelerator's path: there a refresh reads what on
    CUDA is copied to the host while that goes on.
    """
    on = "meta" if device == "cpu" else device
    shapes = [SHAPES["order2"]] if on == "meta" else _shapes()
    params = parameters(shapes, on)
    optimizer = Shampoo(params, **member(name))
    contestant = Contestant(name, params, (optimizer,), lambda refresh: set_period(optimizer, 1 if refresh else NEVER))
    if on == "meta":
        counts = count(contestant, shapes, device=on)["ordinary"]
        return HostReads(on, 1, tuple(f"ordinary step: {what}" for what in counts.host_reads.elements()))
    source = GradientSource(shapes, on)
    # The first steps load libraries, which may wait; and first bases come from eigh, which asks whether it succeeded.
    for step in range(3):
        contestant.prepare(source, step, refresh=True)
        contestant.step()
    found = []
    kinds = ("refresh", "refresh", "ordinary", "ordinary") * 3
    for step, kind in enumerate(kinds):
        contestant.prepare(source, step, refresh=kind == "refresh")
        torch.cuda.synchronize()
        with syncs_are_errors():
            try:
                contestant.step()
            except RuntimeError as error:
                found.append(f"{kind} step: {error}, at {_place(error)}")
                break
    return HostReads(on, len(kinds), tuple(found))


def _place(error: BaseException) -> str:
    """The innermost line of the optimizer that an error comes from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/shampoo/" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "an unknown place"


def _only_queues(name: str) -> bool:
    """True if an accelerator can take this member's steps without the host: with solvers made of products alone."""
    config = member(name)
    return not _has_solver(config) or solver_on(config, "cuda") in ("coupled_newton", "cholesky_qr")


def _has_solver(config: dict[str, Any]) -> bool:
    return "solver" not in unused(config.get("preconditioner", "shampoo"))


def _shapes() -> list[tuple[int, ...]]:
    return list(SHAPES.values())


def _rank_tasks(device: str, *, is_tiny: bool) -> list[Task]:
    on_device = "cuda:0" if device == "cuda" else device
    names = RANK_MEMBERS[:1] if is_tiny else RANK_MEMBERS
    one = "nccl" if device == "cuda" else "gloo"
    return [
        Task(RANKS, f"one on {one}", one_rank, (on_device, names), limit_seconds=180),
        Task(RANKS, "two on gloo", two_ranks, (on_device, names), limit_seconds=180),
        Task(RANKS, "two on gloo with fsdp2", two_sharded_ranks, (on_device, names), limit_seconds=180),
    ]


def one_rank(device: str, names: Sequence[str]) -> Comparison:
    """A rank under DDP with lossless sharing, and one under FSDP2, against no ranks at all."""

    def difference(group: WarmRanks, name: str) -> float:
        config = member(name, weight_decay=0.1, epsilon=1e-2)
        expected = ranks.train(device, "alone", config, RANK_STEPS)
        [ddp] = group.run(ranks.train, device, "ddp", {**config, "distributed": "lossless"}, RANK_STEPS)
        [fsdp] = group.run(ranks.train, device, "fsdp2", config, RANK_STEPS)
        return max(_difference(ddp, expected), _difference(fsdp, expected))

    return _on_ranks(1, device, names, difference)


def two_ranks(device: str, names: Sequence[str]) -> Comparison:
    """Two ranks with one device, on gloo: DDP with lossless sharing, also of given gradients, against one process."""

    def difference(group: WarmRanks, name: str) -> float:
        config = member(name, weight_decay=0.1, epsilon=1e-2)
        expected = ranks.train(device, "alone", config, RANK_STEPS)
        given = _at_home(sharded.train(None, config, RANK_STEPS, device=device))
        shared = functools.partial(sharded.train, device=device)
        found = group.run(ranks.train, device, "ddp", {**config, "distributed": "lossless"}, RANK_STEPS)
        of_given = group.run(shared_at_home, shared, config, RANK_STEPS)
        return max(
            *(_difference(weights, expected) for weights in found),
            *(_difference(weights, given) for weights in of_given),
        )

    return _on_ranks(2, "cpu", names, difference)


def two_sharded_ranks(device: str, names: Sequence[str]) -> Comparison:
    """Two ranks with one device, on gloo, under FSDP2, against one process."""

    def difference(group: WarmRanks, name: str) -> float:
        config = member(name, weight_decay=0.1, epsilon=1e-2)
        expected = ranks.train(device, "alone", config, RANK_STEPS)
        found = group.run(ranks.train, device, "fsdp2", config, RANK_STEPS)
        return max(_difference(weights, expected) for weights in found)

    return _on_ranks(2, "cpu", names, difference)


def shared_at_home(train: Callable[..., list[Tensor]], config: dict[str, Any], num_steps: int) -> list[Tensor]:
    """Weights of two ranks that share the work, on the host: a rank cannot send what lies on its device."""
    return _at_home(train("ddp two", config, num_steps))


def _at_home(weights: Sequence[Tensor]) -> list[Tensor]:
    return [weight.cpu() for weight in weights]


def _on_ranks(
    num_ranks: int, device: str, names: Sequence[str], difference: Callable[[WarmRanks, str], float]
) -> Comparison:
    """The largest difference of these members on so many ranks, which must end in good order.

    Args:
        device: of the process group: NCCL for CUDA, else gloo.
    """
    with tempfile.TemporaryDirectory() as directory:
        group = WarmRanks(num_ranks, Path(directory) / "meeting_point", device=device)
        worst = max(difference(group, name) for name in names)
        statuses = group.stop()
    if any(statuses):
        raise RuntimeError(f"the ranks' weights differ by {worst:.3g}; they ended with the exit statuses {statuses}")
    return Comparison(worst, RANK_LIMIT)


def _difference(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    return sharded.difference(found, expected)


class _Outcomes:
    """A plugin of pytest that remembers how tests ended, and which packages they miss."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.skipped: list[str] = []
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.skipped:
            self.skipped.append(report.nodeid)
        elif report.when == "call":
            self.passed.append(report.nodeid)

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        if report.when != "collect":
            return
        error: BaseException | None = call.excinfo.value
        while error is not None and not isinstance(error, ModuleNotFoundError):
            error = error.__cause__ or error.__context__
        why = f" needs the package {error.name}" if error is not None else " cannot be collected"
        self.failed.append(f"{node.nodeid}{why}")


def suite_tests(device: str, root: Path = ROOT) -> SuiteTests:
    """Runs the tests of a checkout that are marked `gpu`, each as it stands in the suite."""
    missing = [name for name in ("pytest", "hypothesis") if find_spec(name) is None]
    if missing:
        return SuiteTests(device, 0, (), tuple(f"all of them need the package {name}" for name in missing))
    import pytest

    files = [path for path in root.glob("tests/**/test_*.py") if "\n@pytest.mark.gpu\n" in path.read_text()]
    outcomes = _Outcomes()
    options = ["-m", "gpu", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--rootdir={root}"]
    options.append("--continue-on-collection-errors")  # of files that need packages which are not here
    status = pytest.main([*options, *map(str, sorted(files))], plugins=[outcomes])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        outcomes.failed.append(f"pytest {pytest.__version__} ended with status {int(status)}")
    return SuiteTests(device, len(outcomes.passed), tuple(outcomes.skipped), tuple(outcomes.failed))
