"""The time and memory of a step on a real model's parameters, beside those of fused AdamW.

Hidden matrices are stepped by the member of the family, and tables, head, norms and biases by plain AdamW steps of the
same optimizer, as `shampoo.param_groups` splits a model.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from shampoo.hyperparameters import DEFAULT_REFRESH_PERIOD, unused
from tests.benchmarks.steps.contestants import (
    NEVER,
    Contestant,
    GradientSource,
    adamw,
    ours,
    parameters,
    products_per_millisecond,
    queued_and_finished,
    set_period,
)
from tests.benchmarks.steps.counts import Scratch, allocated_bytes, count_step
from tests.benchmarks.steps.formulas import PRECONDITIONERS, blocks, num_elements, product_operations
from tests.benchmarks.steps.model_shapes import SplitModel, tiny_gpt2, tiny_resnet, whole_gpt2, whole_resnet50
from tests.benchmarks.steps.optimizer_step import typical_cycle
from tests.benchmarks.steps.step_counts import state_tensors
from tests.gpu.results import StepTimes
from tests.gpu.runner import Task
from tests.support.shampoo.deviations import solver_on

MODELS: Mapping[str, Callable[[], SplitModel]] = {"gpt2": whole_gpt2, "resnet50": whole_resnet50}
TINY: Mapping[str, Callable[[], SplitModel]] = {"gpt2": tiny_gpt2, "resnet50": tiny_resnet}
START_WITH: Mapping[str, dict[str, Any]] = {
    "shampoo": {},
    "soap": {"betas": (0.95, 0.95)},
    "kl": {"betas": (0.9, 0.95)},
    "spectral": {"betas": (0.95, 0.999), "beta3": 0.9025},
    "none": {},
}
"""As shampoo/README.md recommends; the rest are defaults."""
VARIATIONS: Mapping[str, dict[str, Any]] = {
    "": {},
    "bfloat16 products": {"product_dtype": "bfloat16"},
    "followed bases": {"solver": "cholesky_qr"},  # for shampoo; soap and kl follow theirs anyway
}
BLOCK = 1024
NUM_WARM_UP_STEPS = 3


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often each kind of step is timed."""

    ordinary: int
    refresh: int
    cycles: int


FULL = Repeats(ordinary=30, refresh=5, cycles=3)
FEW = Repeats(ordinary=3, refresh=1, cycles=1)


def tasks(model: str, device: str, *, is_tiny: bool) -> list[Task]:
    """The figures of a model: every member as recommended, then variations; in small, of one member."""
    shapes = (TINY if is_tiny else MODELS)[model]()
    return [
        Task(
            f"steps of {model}", f"{member} {variation}".strip(), measure, (member, variation, shapes, device, is_tiny)
        )
        for variation, arguments in VARIATIONS.items()
        for member in START_WITH
        if not set(arguments) & set(unused(member))
        and arguments.get("solver") != solver_on({"preconditioner": member}, "cuda")
        and (not is_tiny or not variation or member == "shampoo")
    ]


def measure(member: str, variation: str, model: SplitModel, device: str, is_tiny: bool) -> StepTimes:
    """Alternates steps of a member of the family and of AdamW on parameters of the same shapes."""
    torch.manual_seed(0)
    repeats = FEW if is_tiny else FULL
    shapes = [*model.matrices, *model.plain]
    source = GradientSource(shapes, device)
    params = parameters(shapes, device)
    groups: list[dict[str, Any]] = [
        {"params": params[: len(model.matrices)]},
        {"params": params[len(model.matrices) :], "preconditioner": "none"},
    ]
    arguments = {**START_WITH[member], **VARIATIONS[variation]}
    optimizer = ours(groups, block=BLOCK, preconditioner=member, **arguments)
    refreshes = "precondition_frequency" not in unused(member)
    period = DEFAULT_REFRESH_PERIOD[member]
    we = Contestant("ours", params, (optimizer,))
    adam = adamw(parameters(shapes, device))
    multiply = products_per_millisecond(128 if is_tiny else 4096, params[0].device)
    step = 0
    queued: list[float] = []
    adam_times: list[float] = []
    rates: list[float] = []

    def turn() -> float:
        """A step of each; ours in milliseconds."""
        nonlocal step
        step += 1
        rates.append(multiply())
        adam_times.append(adam.milliseconds(source, step))
        we.prepare(source, step)
        until_return, until_done = queued_and_finished(we.step, params[0].device)
        queued.append(until_return)
        return until_done

    for _ in range(NUM_WARM_UP_STEPS):
        turn()
    adam_times.clear()
    rates.clear()
    scratch = _scratch_bytes(we, source, device)
    refresh = [turn() for _ in range(repeats.refresh)] if refreshes else []
    set_period(optimizer, NEVER)
    queued.clear()
    ordinary = [turn() for _ in range(repeats.ordinary)]
    queue_ms = statistics.median(queued)
    set_period(optimizer, period)
    cycle = typical_cycle([turn() for _ in range(period * repeats.cycles)], period) if refreshes else ordinary
    state_bytes = allocated_bytes(state_tensors(we))
    has_floor = member in PRECONDITIONERS and not VARIATIONS[variation]
    operations = product_operations(blocks(model.matrices, BLOCK), member) if has_floor else 0
    return StepTimes(
        member=member,
        variation=variation,
        arguments=arguments,
        num_parameters=num_elements(shapes),
        solver=solver_on({"preconditioner": member, **arguments}, device) if refreshes else None,
        period=period,
        ordinary_ms=statistics.median(ordinary),
        queue_ms=queue_ms,
        refresh_ms=statistics.median(refresh) if refresh else None,
        cycle_ms=statistics.fmean(cycle) if refreshes else statistics.median(ordinary),
        longest_ms=max(cycle),
        adamw_ms=statistics.median(adam_times),
        floor_ms=operations / statistics.median(rates) if has_floor else None,
        state_bytes=state_bytes,
        adamw_state_bytes=allocated_bytes(state_tensors(adam)),
        scratch_bytes=scratch,
        peak_bytes=8 * num_elements(shapes) + state_bytes + scratch,
    )


def _scratch_bytes(contestant: Contestant, source: GradientSource, device: str) -> int:
    """Most memory in use at once beyond what there was before a step that refreshes everything."""
    contestant.prepare(source, 0)
    if device == "cpu":
        return count_step(contestant.step, device=device, scratch=Scratch()).scratch_bytes
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    contestant.step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
