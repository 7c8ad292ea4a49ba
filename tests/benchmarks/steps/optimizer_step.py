"""How long a step takes: against its own matrix products, against fused AdamW, and against other packages.

    pip install -e '.[bench]'    # the other packages
    python -m tests.benchmarks.steps.optimizer_step --models resnet50 gpt2 --preconditioner soap --frequency 10 50

Parameters have the shapes of real models, gradients are random (see `contestants`). Every optimizer takes its steps in
turn in one process. Ours runs first with no refresh at all, then at each period f through whole refresh cycles; with
several `--cycles` the time of each step of the cycle is the median over them. A cycle of a peer is one step that
refreshes everything and f − 1 equal ones without: `--peer-steps` of these, spread over the cycle, stand for all.

    ordinary_over_floor    median step without refresh over the time its matrix products take (`formulas`) at the
                           speed of `torch.mm` measured beside it
    operations_over_copied_bytes
                           that speed over the machine's of copying memory: the more operations there are for a byte,
                           the more an ordinary step takes that is not products
    refresh_share          mean step of a whole cycle over the median step without refresh, less 1
    worst_over_median      longest step of a cycle over its median
    cycle_over_adamw       mean step of a whole cycle over the median of `torch.optim.AdamW(fused=True)`
    peer_cycle_over_ours   mean steps of whole cycles, for each peer and model; `peers` says how they are set

Each is given for every f, as NAME.every_F, and by itself at the member's own default period if that is among them
(else the longest). Over models and peers it is the worst for us.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import torch

from tests.benchmarks.report import Cell, report
from tests.benchmarks.steps.contestants import (
    NEVER,
    Contestant,
    GradientSource,
    adamw,
    copied_bytes_per_millisecond,
    ours,
    parameters,
    products_per_millisecond,
    set_period,
)
from tests.benchmarks.steps.formulas import PRECONDITIONERS, blocks, num_elements, product_operations, state_bytes
from tests.benchmarks.steps.model_shapes import MODELS, Shapes
from tests.benchmarks.steps.peers import DEFAULT_PEERS, PEERS, build_peer

DEFAULT_PERIOD = {"shampoo": 50, "soap": 10, "kl": 10}
NUM_WARM_UP_STEPS = 3
_NUM_COPIED_BYTES = 2**28
"""More than a cache holds."""
_LEAST_STEPS = 3
"""Fewest steps to measure with each period: of a shorter one, more cycles are measured."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all models."""

    preconditioner: str
    block: int
    periods: tuple[int, ...]
    cycles: int
    ordinary_steps: int
    peer_steps: int
    peers: tuple[str, ...]
    arguments: dict[str, Any]
    """Further arguments of our optimizer."""
    device: str
    compiled_peers: bool


@dataclass(slots=True)
class Times:
    """Milliseconds of single steps."""

    ordinary: list[float] = field(default_factory=list)
    refresh: list[float] = field(default_factory=list)

    def cycle_mean(self, period: int) -> float:
        """Mean step of a cycle that refreshes once."""
        if period == 1:
            return statistics.fmean(self.refresh)
        return (statistics.fmean(self.refresh) + (period - 1) * statistics.fmean(self.ordinary)) / period


def measure(shapes: Shapes, settings: Settings) -> dict[str, Any]:
    """Times of all optimizers on parameters of these shapes, in milliseconds, and the ratios."""
    torch.manual_seed(0)
    device, block = settings.device, settings.block
    source = GradientSource(shapes, device)
    our_params = parameters(shapes, device)
    optimizer = ours(our_params, block=block, preconditioner=settings.preconditioner, **settings.arguments)
    we = Contestant("ours", our_params, (optimizer,))
    adam = adamw(parameters(shapes, device))
    peers = [
        build_peer(name, shapes, block=block, device=device, compiled=settings.compiled_peers)
        for name in settings.peers
    ]
    multiply = products_per_millisecond(1024 if device == "cpu" else 4096, torch.device(device))
    for step in range(NUM_WARM_UP_STEPS):
        for contestant in (we, adam, *peers):
            contestant.milliseconds(source, step, refresh=step < NUM_WARM_UP_STEPS - 1)
        multiply()

    step = NUM_WARM_UP_STEPS
    adam_times: list[float] = []
    rates: list[float] = []

    def round_of_ours() -> float:
        nonlocal step
        step += 1
        adam_times.append(adam.milliseconds(source, step))
        rates.append(multiply())
        return we.milliseconds(source, step)

    set_period(optimizer, NEVER)
    ordinary = [round_of_ours() for _ in range(settings.ordinary_steps)]
    cycles: dict[int, list[float]] = {}
    peer_times = {(peer.name, period): Times() for peer in peers for period in settings.periods}
    for period in settings.periods:
        set_period(optimizer, period)
        num_cycles = max(settings.cycles, math.ceil(_LEAST_STEPS / period))
        stride = max(1, math.ceil((period - 1) / settings.peer_steps))
        times: list[float] = []
        for number in range(num_cycles * period):
            position = number % period
            times.append(round_of_ours())
            for peer in peers:
                if position == 0:
                    peer_times[peer.name, period].refresh.append(peer.milliseconds(source, step, refresh=True))
                elif (position - 1) % stride == 0:
                    peer_times[peer.name, period].ordinary.append(peer.milliseconds(source, step))
        cycles[period] = typical_cycle(times, period)
        progress(f"  every {period}: mean {statistics.fmean(cycles[period]):.3g} ms")

    found = blocks(shapes, block)
    ordinary_ms, adamw_ms = statistics.median(ordinary), statistics.median(adam_times)
    rate = statistics.median(rates)
    memory_rate = copied_bytes_per_millisecond(_NUM_COPIED_BYTES, torch.device(device))
    floor = product_operations(found, settings.preconditioner) / rate
    return {
        "num_parameters": num_elements(shapes),
        "num_blocks": found.total(),
        "gemm_gigaflops": rate / 1e6,
        "copied_gigabytes_per_second": memory_rate / 1e6,
        "operations_over_copied_bytes": rate / memory_rate,
        "floor_ms": floor,
        "ordinary_ms": ordinary_ms,
        "adamw_ms": adamw_ms,
        "ordinary_over_floor": ordinary_ms / floor,
        "every": {
            str(period): {
                "cycle_mean_ms": (mean := statistics.fmean(times)),
                "worst_ms": max(times),
                "refresh_share": mean / ordinary_ms - 1,
                "worst_over_median": max(times) / statistics.median(times),
                "cycle_over_adamw": mean / adamw_ms,
                "peers": {
                    peer.name: {
                        "ordinary_ms": statistics.median(theirs.ordinary) if theirs.ordinary else None,
                        "num_ordinary": len(theirs.ordinary),
                        "refresh_ms": statistics.median(theirs.refresh),
                        "cycle_mean_ms": theirs.cycle_mean(period),
                        "peer_cycle_over_ours": theirs.cycle_mean(period) / mean,
                    }
                    for peer in peers
                    for theirs in (peer_times[peer.name, period],)
                },
            }
            for period, times in cycles.items()
        },
    }


def typical_cycle(times: Sequence[float], period: int) -> list[float]:
    """Median time at each position of a cycle, from the steps of whole cycles."""
    return [statistics.median(times[position::period]) for position in range(period)]


def claims(figures: dict[str, dict[str, Any]], settings: Settings) -> dict[str, float]:
    """The worst of the models (and peers), for every period and by itself at the headline period."""
    models = [figure for figure in figures.values() if "every" in figure]
    if not models:
        return {}
    ratios: dict[str, float] = {
        name: max(figure[name] for figure in models) for name in ("ordinary_over_floor", "operations_over_copied_bytes")
    }
    default = DEFAULT_PERIOD[settings.preconditioner]
    headline = default if default in settings.periods else max(settings.periods)
    for name in ("refresh_share", "worst_over_median", "cycle_over_adamw"):
        worst = {period: max(f["every"][str(period)][name] for f in models) for period in settings.periods}
        ratios[name] = worst[headline]
        ratios.update({f"{name}.every_{period}": value for period, value in worst.items()})
    of_peers = {
        f"{peer}.{model}.every_{period}": values["peer_cycle_over_ours"]
        for model, figure in figures.items()
        for period in (settings.periods if "every" in figure else ())
        for peer, values in figure["every"][str(period)]["peers"].items()
    }
    if of_peers:
        suffix = f".every_{headline}"
        ratios["peer_cycle_over_ours"] = min(value for name, value in of_peers.items() if name.endswith(suffix))
        ratios.update({f"peer_cycle_over_ours.{name}": value for name, value in of_peers.items()})
    return ratios


def bytes_needed(shapes: Shapes, settings: Settings) -> int:
    """About what one model takes: for ours and each peer weights, gradients and state, for AdamW likewise.

    Peers come with a third more, for what they put together anew at every step.
    """
    numel = num_elements(shapes)
    state = state_bytes(blocks(shapes, settings.block), settings.preconditioner)
    own = 8 * numel + state
    return 4 * numel + own + 16 * numel + len(settings.peers) * own * 4 // 3


def bytes_available(device: str) -> int:
    return torch.cuda.mem_get_info()[0] if device == "cuda" else psutil.virtual_memory().available


def installed_peers(preconditioner: str) -> tuple[str, ...]:
    """Peers of the same update whose package is here; says which are left out."""
    found = {name: find_spec(name.split(".")[0]) is not None for name in DEFAULT_PEERS[preconditioner]}
    for name, is_installed in found.items():
        if not is_installed:
            progress(f"{name}: left out, not installed (extra `bench`)")
    return tuple(name for name, is_installed in found.items() if is_installed)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(figures: dict[str, dict[str, Any]], settings: Settings) -> tuple[list[str], list[list[Cell]]]:
    """Column heads and rows, one for each model and period."""
    columns = ["model", "f", "floor ms", "ordinary ms", "cycle ms", "AdamW ms"]
    columns += ["ordinary/floor", "refresh share", "worst/median", "cycle/AdamW"]
    columns += [f"{peer.replace('pytorch_optimizer', 'po')}/ours" for peer in settings.peers]
    rows: list[list[Cell]] = []
    for model, figure in figures.items():
        for period, of_period in figure.get("every", {}).items():
            row: list[Cell] = [model, int(period), figure["floor_ms"], figure["ordinary_ms"]]
            row += [of_period["cycle_mean_ms"], figure["adamw_ms"], figure["ordinary_over_floor"]]
            row += [of_period[name] for name in ("refresh_share", "worst_over_median", "cycle_over_adamw")]
            row += [of_period["peers"][peer]["peer_cycle_over_ours"] for peer in settings.peers]
            rows.append(row)
    return columns, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=["resnet50", "gpt2"])
    parser.add_argument("--preconditioner", choices=PRECONDITIONERS, default="shampoo")
    parser.add_argument("--frequency", type=int, nargs="+", default=[50], help="steps from refresh to refresh")
    parser.add_argument("--block", type=int, default=256, help="longest side of a block")
    parser.add_argument("--solver", help="ours only; default: the member's own")
    parser.add_argument("--no-stagger", action="store_true", help="ours refreshes everything in one step")
    parser.add_argument("--cycles", type=int, default=1, help="whole cycles measured at each frequency")
    parser.add_argument("--ordinary-steps", type=int, default=10, help="steps without refresh of ours")
    parser.add_argument(
        "--peers", nargs="*", choices=sorted(PEERS), help="default: those of the same update; with no name none"
    )
    parser.add_argument("--peer-steps", type=int, default=20, help="most steps without refresh of a peer in a cycle")
    parser.add_argument("--compile-peers", action="store_true", help="heavyball with torch.compile; always on CUDA")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    for name in ("block", "cycles", "ordinary_steps", "peer_steps", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    if min(options.frequency) < 1:
        parser.error(f"--frequency must be at least 1, got {options.frequency}")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    settings = Settings(
        preconditioner=options.preconditioner,
        block=options.block,
        periods=tuple(dict.fromkeys(options.frequency)),
        cycles=options.cycles,
        ordinary_steps=options.ordinary_steps,
        peer_steps=options.peer_steps,
        peers=installed_peers(options.preconditioner) if options.peers is None else tuple(options.peers),
        arguments={
            **({"solver": options.solver} if options.solver else {}),
            **({"stagger_refresh": False} if options.no_stagger else {}),
        },
        device=options.device,
        compiled_peers=options.compile_peers or options.device == "cuda",
    )
    figures: dict[str, dict[str, Any]] = {}
    for name in options.models:
        shapes = MODELS[name]()
        needed, available = bytes_needed(shapes, settings), bytes_available(settings.device)
        if needed > available:
            reason = f"needs about {needed / 2**30:.1f} GiB, {available / 2**30:.1f} GiB are free"
            progress(f"{name}: skipped, {reason}")
            figures[name] = {"skipped": reason}
            continue
        progress(f"{name}: {num_elements(shapes):,} parameters")
        figures[name] = measure(shapes, settings)
    columns, rows = table(figures, settings)
    report(
        "optimizer_step",
        columns=columns,
        rows=rows,
        figures={
            "models": figures,
            **{name: getattr(settings, name) for name in Settings.__slots__ if name != "periods"},
            "periods": list(settings.periods),
            "peer_versions": {name: version(name) for name in sorted({peer.split(".")[0] for peer in settings.peers})},
        },
        ratios=claims(figures, settings),
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
