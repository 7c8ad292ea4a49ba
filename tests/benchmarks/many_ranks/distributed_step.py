"""The optimizer over ranks: what each holds, how long a step takes, what is sent; and on paper for up to 4,096 ranks.

    python -m tests.benchmarks.many_ranks.distributed_step                                       # everything
    python -m tests.benchmarks.many_ranks.distributed_step --parts simulated needed --preconditioners shampoo soap

Measured, on gloo ranks of one thread each, which train a small GPT with `fully_shard` ("lossless", "local"), and in
turns with that each of them the whole model, as the replicas of DDP do: with owners of its blocks ("shared"), or each
alone ("replicated"). With more ranks than processors they wait for one another.

    state_over_share            most state of a rank over 1/world of the replicated state
    lossless_over_replicated    mean step of a whole refresh cycle, median over the cycles; and so for local and shared
    lossless_over_ideal         the same over the replicated step times the slowest rank's predicted share of the work
    bytes_over_formula          bytes that all ranks send in a step over 3P(S − 1)/S in lossless, P bytes of matrices on
                                S ranks, and over P(S − 1) in shared, P bytes of weights: `shampoo.distributed`
                                has 3P/S and P for each rank, own rows included
    bytes_over_simulated        the same over what the simulation says, the worst rank; alignment and headers included
    bytes_over_fsdp             over what FSDP2 sends in the forward and backward pass

Simulated from shapes, for as many ranks as it says: matrices by a member of the family, the rest by AdamW, all of it
owned: sharded by FSDP2, or plain under DDP, in groups of the size that the optimizer chooses.

    state_imbalance, work_imbalance   most of a rank over the mean; under DDP within a group
    step_imbalance                    over a refresh period: each step's most work of a rank, summed, over the mean,
                                      with stagger_refresh=True; at_once: with False
    least_work, least_state           what no assignment of whole blocks could be below
    ranks_within_tenth                most of these numbers of ranks up to which state and work are at most 1.1
    worst_over_least                  state or work over what is inevitable: what the assignment adds at worst
    assignment_seconds                the longest choice of owners, and under DDP of the size of the groups

Needed for models of 1 billion to 1 trillion parameters, see `large_models`, in bytes and operations, not in time.

    work_over_model             operations of a mean step over those of the model's forward and backward pass
    sent_over_fsdp              bytes that a rank sends in the mean over those that FSDP2 or DDP sends

Each by itself is the worst of all cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.many_ranks.large_models import TRAININGS, Needs, all_needs
from tests.benchmarks.many_ranks.ranks_simulation import (
    Simulation,
    fully_sharded,
    group_size,
    groups_of,
    replicated,
    simulate,
)
from tests.benchmarks.many_ranks.sharded_steps import SPREAD, Settings, groups_of_shapes, measure, median_quotient
from tests.benchmarks.report import Cell, print_table, report
from tests.benchmarks.steps.formulas import num_elements
from tests.benchmarks.steps.model_shapes import SPLIT_MODELS
from tests.support.trainers.ranks import WarmRanks

PARTS = ("measured", "simulated", "needed")
PRECONDITIONERS = ("shampoo", "soap", "spectral")
SIMULATED_MODELS = ("resnet50", "gpt2", "llama_7b", "llama_70b", "recommender")
PLACEMENTS = ("fsdp2", "ddp")
SIMULATED_RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
WITHIN = 1.1
_GIGA = 1e9


def measured(settings: Settings, num_ranks: int) -> dict[str, Any]:
    """Figures and claims of one member on some ranks."""
    with tempfile.TemporaryDirectory() as directory:
        ranks = WarmRanks(num_ranks, Path(directory) / "meeting_point", timeout_seconds=3600)
        of_ranks = ranks.run(measure, settings)
        ranks.stop()
    groups = groups_of_shapes(settings)
    simulated = {
        "lossless": simulate(groups, fully_sharded(num_ranks), device="cpu"),
        "shared": simulate(groups, replicated(num_ranks), device="cpu"),
    }
    weights_bytes = 4 * sum(num_elements(group.shapes) for group in groups)
    matrices_bytes = 4 * num_elements(groups[0].shapes)
    formula = {
        "lossless": 3 * matrices_bytes * (num_ranks - 1) / num_ranks,
        "shared": weights_bytes * (num_ranks - 1),
    }
    total_state = of_ranks[0]["state_bytes"]["replicated"]
    most_state = {mode: max(rank["state_bytes"][mode] for rank in of_ranks) for mode in SPREAD}
    sent = {mode: [rank["moved_bytes"][mode].get("sent", 0) for rank in of_ranks] for mode in (*SPREAD, "fsdp")}
    ratios = {f"state_over_share.{mode}": most * num_ranks / total_state for mode, most in most_state.items()}
    ratios |= {f"{mode}_over_replicated": median_quotient(of_ranks, mode, "replicated") for mode in SPREAD}
    for mode, found in simulated.items():
        ideal = found.work_imbalance / num_ranks
        ratios[f"{mode}_over_ideal"] = ratios[f"{mode}_over_replicated"] / ideal
        ratios[f"bytes_over_formula.{mode}"] = sum(sent[mode]) / formula[mode]
        of_simulated = zip(sent[mode], found.moved.sent_bytes, strict=True)
        ratios[f"bytes_over_simulated.{mode}"] = max(here / there for here, there in of_simulated)
    ratios["bytes_over_fsdp.lossless"] = sum(sent["lossless"]) / sum(sent["fsdp"])
    return {
        "num_ranks": num_ranks,
        "num_elements": weights_bytes // 4,
        "state_bytes": {"replicated": total_state, **most_state},
        "step_ms": of_ranks[0]["step_ms"],
        "slowest_share": {mode: found.work_imbalance / num_ranks for mode, found in simulated.items()},
        "sent_bytes": sent,
        "collectives": {mode: of_ranks[0]["moved_bytes"][mode].get("collectives", 0) for mode in SPREAD},
        "ratios": ratios,
    }


def measured_rows(figures: dict[str, dict[str, Any]]) -> list[list[Cell]]:
    """A line for each figure, a column for each member and number of ranks."""
    first = next(iter(figures.values()))
    rows: list[list[Cell]] = [
        [f"{mode} ms", *(figure["step_ms"][mode] for figure in figures.values())] for mode in first["step_ms"]
    ]
    return rows + [[name, *(figure["ratios"][name] for figure in figures.values())] for name in first["ratios"]]


def imbalances(model: str, preconditioner: str, *, placement: str, ranks: Sequence[int]) -> dict[str, Any]:
    """Imbalances of one model and member, by number of ranks."""
    groups = groups_of(SPLIT_MODELS[model](), preconditioner=preconditioner)
    found: dict[int, Simulation] = {}
    seconds = 0.0
    for num in ranks:
        begun = time.perf_counter()
        size = group_size(groups, num) if placement == "ddp" else num
        choosing = time.perf_counter() - begun
        found[num] = simulate(groups, replicated(size) if placement == "ddp" else fully_sharded(num))
        seconds = max(seconds, choosing + found[num].assignment_seconds)
    worst = {num: max(s.state_imbalance, s.work_imbalance) for num, s in found.items()}
    return {
        "group_size": {str(num): s.array.num_ranks for num, s in found.items()},
        "state_imbalance": {str(num): s.state_imbalance for num, s in found.items()},
        "least_state": {str(num): s.least_imbalance[1] for num, s in found.items()},
        "work_imbalance": {str(num): s.work_imbalance for num, s in found.items()},
        "least_work": {str(num): s.least_imbalance[0] for num, s in found.items()},
        "step_imbalance": {str(num): s.step_imbalance(stagger_refresh=True) for num, s in found.items()},
        "step_imbalance_at_once": {str(num): s.step_imbalance(stagger_refresh=False) for num, s in found.items()},
        "assignment_seconds": seconds,
        "ranks_within_tenth": within(worst, limit=WITHIN),
        "worst_over_least": max(
            max(s.work_imbalance / s.least_imbalance[0], s.state_imbalance / s.least_imbalance[1])
            for s in found.values()
        ),
    }


def within(worst: dict[int, float], *, limit: float) -> int:
    """The largest number of ranks up to which all stay within the limit; 1 if there is none."""
    reached = 1
    for num, imbalance in sorted(worst.items()):
        if imbalance > limit:
            break
        reached = num
    return reached


SIMULATED_FIGURES = (
    "group_size",
    "state_imbalance",
    "least_state",
    "work_imbalance",
    "least_work",
    "step_imbalance",
    "step_imbalance_at_once",
)


def simulated_rows(figures: dict[str, dict[str, Any]], ranks: Sequence[int]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, figure in figures.items():
        for what in SIMULATED_FIGURES:
            if what == "group_size" and name.endswith(".fsdp2"):
                continue
            row: list[Cell] = [f"{name}.{what}"]
            row += [figure[what][str(num)] for num in ranks]
            row += [figure["ranks_within_tenth"], figure["worst_over_least"], f"{figure['assignment_seconds']:.2f}"]
            rows.append(row)
    return rows


def needed_row(needs: Needs) -> list[Cell]:
    low = [needs.mean_state_bytes.get(dtype) for dtype in ("bfloat16", "int4")]
    return [
        f"{needs.training.name}.{needs.preconditioner}",
        needs.mean_adamw_bytes / _GIGA,
        needs.mean_state_bytes["float32"] / _GIGA,
        needs.most_state_bytes / _GIGA,
        *("-" if nbytes is None else nbytes / _GIGA for nbytes in low),
        needs.most_working_bytes / _GIGA,
        needs.imbalance,
        needs.least_imbalance,
        needs.step_imbalance,
        f"{100 * needs.mean_operations / needs.model_operations:.3f}",
        f"{100 * needs.most_operations / needs.model_operations:.3f}",
        needs.fsdp_bytes / _GIGA,
        needs.formula_bytes / _GIGA,
        needs.mean_sent_bytes / _GIGA,
        needs.most_moved_bytes / _GIGA,
    ]


NEEDED_COLUMNS = (
    "training (replicas x shards)",
    "AdamW GB",
    "mean GB",
    "most GB",
    "mean bf16",
    "mean int4",
    "working GB",
    "imbalance",
    "least",
    "of steps",
    "work % of model",
    "slowest %",
    "FSDP/DDP sends GB",
    "formula GB",
    "we send GB",
    "most GB moved",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--preconditioners", nargs="+", choices=PRECONDITIONERS, default=list(PRECONDITIONERS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="measured numbers of ranks")
    parser.add_argument("--width", type=int, default=256, help="width of the measured GPT")
    parser.add_argument("--blocks", type=int, default=4, help="layers of the measured GPT")
    parser.add_argument("--block", type=int, default=256, help="longest side of a block of the measured optimizer")
    parser.add_argument("--frequency", type=int, default=10, help="measured steps from refresh to refresh")
    parser.add_argument("--cycles", type=int, default=5, help="measured cycles of as many steps")
    parser.add_argument("--models", nargs="+", choices=sorted(SPLIT_MODELS), help="simulated, and needed where trained")
    parser.add_argument("--quick", action="store_true", help="a tiny model on two ranks, and few simulated ranks")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    for name in ("width", "blocks", "block", "frequency", "cycles"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    if min(options.ranks) < 2:
        parser.error(f"--ranks must be at least 2, got {options.ranks}")
    simulated_ranks: tuple[int, ...] = SIMULATED_RANKS
    if options.quick:
        options.ranks, options.width, options.blocks, options.block = [2], 32, 2, 32
        options.frequency, options.cycles, simulated_ranks = 2, 2, (2, 64)
    figures: dict[str, dict[str, Any]] = {part: {} for part in options.parts}
    ratios: dict[str, float] = {}
    tables: list[tuple[Sequence[str], Sequence[Sequence[Cell]]]] = []
    if "measured" in options.parts:
        for preconditioner in options.preconditioners:
            settings = Settings(
                preconditioner, options.frequency, options.cycles, options.width, options.blocks, options.block
            )
            for num_ranks in options.ranks:
                name = f"{preconditioner}.ranks_{num_ranks}"
                print(name, file=sys.stderr, flush=True)
                figures["measured"][name] = measured(settings, num_ranks)
        tables.append((["measured", *figures["measured"]], measured_rows(figures["measured"])))
        for name, figure in figures["measured"].items():
            ratios |= {f"{claim}.{name}": ratio for claim, ratio in figure["ratios"].items()}
    if "simulated" in options.parts:
        for model in options.models or SIMULATED_MODELS:
            for preconditioner in options.preconditioners:
                for placement in PLACEMENTS:
                    name = f"{model}.{preconditioner}.{placement}"
                    print(name, file=sys.stderr, flush=True)
                    found = imbalances(model, preconditioner, placement=placement, ranks=simulated_ranks)
                    figures["simulated"][name] = found
                    ratios[f"ranks_within_tenth.{name}"] = found["ranks_within_tenth"]
        columns: Sequence[str] = [
            "max/mean over ranks",
            *map(str, simulated_ranks),
            "within 1.1",
            "over least",
            "seconds",
        ]
        tables.append((columns, simulated_rows(figures["simulated"], simulated_ranks)))
        ratios["worst_over_least"] = max(f["worst_over_least"] for f in figures["simulated"].values())
        ratios["assignment_seconds"] = max(f["assignment_seconds"] for f in figures["simulated"].values())
    if "needed" in options.parts:
        models = tuple(options.models or {training.model for training in TRAININGS})
        needs: list[Needs] = []
        for of_one in all_needs(models, tuple(options.preconditioners)):
            print(needed_row(of_one)[0], file=sys.stderr, flush=True)
            needs.append(of_one)
        figures["needed"] = {f"{n.training.name}.{n.preconditioner}": dataclasses.asdict(n) for n in needs}
        tables.append((NEEDED_COLUMNS, [needed_row(n) for n in needs]))
        ratios["work_over_model"] = max(n.mean_operations / n.model_operations for n in needs)
        ratios["sent_over_fsdp"] = max(n.mean_sent_bytes / n.fsdp_bytes for n in needs)
    for table in tables[:-1]:
        print_table(*table)
    columns, rows = tables[-1]
    report("distributed_step", columns=columns, rows=rows, figures=figures, ratios=ratios, json_file=options.json)


if __name__ == "__main__":
    main()
