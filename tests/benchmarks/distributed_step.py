"""The optimizer over ranks: what each holds, how long a step takes, what is sent; and on paper for up to 4,096 ranks.

    python -m tests.benchmarks.distributed_step                                       # everything
    python -m tests.benchmarks.distributed_step --parts simulated needed --preconditioners shampoo soap

Measured, on gloo ranks of one thread each, which train a small GPT with `fully_shard`, and in turns with that each of
them the whole model alone, as the replicas of DDP do. With more ranks than processors they wait for one another.

    state_over_share            most state of a rank over 1/world of the replicated state, in both modes
    lossless_over_replicated    mean step of a whole refresh cycle, median over the cycles; and so for local
    lossless_over_ideal         the same over the replicated step times the slowest rank's predicted share of the work
    bytes_over_formula          bytes that all ranks send in a lossless step over 3P(S − 1)/S, P bytes of weights on
                                S ranks: `shampoo.distributed` has 3P/S for each rank, own rows included
    bytes_over_simulated        the same over what the simulation says, the worst rank; alignment and flags included
    bytes_over_fsdp             over what FSDP2 sends in the forward and backward pass

Simulated from shapes, for as many ranks as it says: matrices by a member of the family, the rest by AdamW, where every
rank steps its own rows ("local") or where each table has an owner too ("owned").

    state_imbalance, work_imbalance   most of a rank over the mean
    least_by_block                    what the largest block alone would make inevitable if ranks owned blocks
    ranks_within_tenth                most of these numbers of ranks up to which both are at most 1.1
    worst_over_least                  the larger over what the largest parameter alone makes inevitable: what the
                                      assignment adds at worst
    assignment_seconds                the longest choice of owners

Needed for models of 1 billion to 1 trillion parameters, see `large_models`, in bytes and operations, not in time.

    work_over_model             operations of a mean step over those of the model's forward and backward pass
    sent_over_fsdp              bytes that a rank sends in the mean over those that FSDP2 sends

Each by itself is the worst of all cases.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.formulas import num_elements
from tests.benchmarks.large_models import TRAININGS, Needs, all_needs
from tests.benchmarks.model_shapes import SPLIT_MODELS
from tests.benchmarks.ranks_simulation import groups_of, simulate
from tests.benchmarks.report import Cell, print_table, report
from tests.benchmarks.sharded_steps import MODES, Settings, groups_of_shapes, measure, median_quotient
from tests.trainers.ranks import WarmRanks

PARTS = ("measured", "simulated", "needed")
PRECONDITIONERS = ("shampoo", "soap", "spectral")
SIMULATED_MODELS = ("resnet50", "gpt2", "llama_7b", "llama_70b", "mixture_1t", "recommender")
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
    simulated = simulate(groups, num_shards=num_ranks, device="cpu")
    slowest_share = simulated.work_imbalance / num_ranks
    weights_bytes = 4 * sum(num_elements(group.shapes) for group in groups)
    total_state = of_ranks[0]["state_bytes"]["replicated"]
    most_state = {mode: max(rank["state_bytes"][mode] for rank in of_ranks) for mode in ("lossless", "local")}
    sent = [rank["moved_bytes"]["lossless"]["sent"] for rank in of_ranks]
    sent_by_fsdp = [rank["moved_bytes"]["fsdp"]["sent"] for rank in of_ranks]
    over_replicated = {mode: median_quotient(of_ranks, mode, "replicated") for mode in ("lossless", "local")}
    return {
        "num_ranks": num_ranks,
        "num_elements": weights_bytes // 4,
        "state_bytes": {"replicated": total_state, **most_state},
        "step_ms": of_ranks[0]["step_ms"],
        "slowest_share": slowest_share,
        "sent_bytes": sent,
        "sent_bytes_by_fsdp": sent_by_fsdp,
        "collectives": [rank["moved_bytes"]["lossless"]["collectives"] for rank in of_ranks],
        "sent_bytes_local": [rank["moved_bytes"]["local"].get("sent", 0) for rank in of_ranks],
        "ratios": {
            "state_over_share.lossless": most_state["lossless"] * num_ranks / total_state,
            "state_over_share.local": most_state["local"] * num_ranks / total_state,
            "lossless_over_replicated": over_replicated["lossless"],
            "local_over_replicated": over_replicated["local"],
            "lossless_over_ideal": over_replicated["lossless"] / slowest_share,
            "bytes_over_formula": sum(sent) / (3 * weights_bytes * (num_ranks - 1) / num_ranks),
            "bytes_over_simulated": max(
                found / rank.sent_bytes for found, rank in zip(sent, simulated.ranks, strict=True)
            ),
            "bytes_over_fsdp": sum(sent) / sum(sent_by_fsdp),
        },
    }


def measured_rows(figures: dict[str, dict[str, Any]]) -> list[list[Cell]]:
    return [
        [name, *(figure["step_ms"][mode] for mode in MODES), figure["slowest_share"], *figure["ratios"].values()]
        for name, figure in figures.items()
    ]


def imbalances(model: str, preconditioner: str, *, tables: str, ranks: Sequence[int]) -> dict[str, Any]:
    """Of one model and member, by number of ranks."""
    groups = groups_of(SPLIT_MODELS[model](), preconditioner=preconditioner, local_plain=tables == "local")
    found = {num: simulate(groups, num_shards=num) for num in ranks}
    return {
        "state_imbalance": {str(num): s.state_imbalance for num, s in found.items()},
        "work_imbalance": {str(num): s.work_imbalance for num, s in found.items()},
        "least_imbalance": {str(num): s.least_imbalance for num, s in found.items()},
        "least_by_block": {str(num): s.least_by_block for num, s in found.items()},
        "assignment_seconds": max(s.assignment_seconds for s in found.values()),
        "ranks_within_tenth": within(
            {num: max(s.state_imbalance, s.work_imbalance) for num, s in found.items()}, limit=WITHIN
        ),
        "worst_over_least": max(max(s.state_imbalance, s.work_imbalance) / s.least_imbalance for s in found.values()),
    }


def within(worst: dict[int, float], *, limit: float) -> int:
    """The largest number of ranks up to which all stay within the limit; 1 if there is none."""
    reached = 1
    for num, imbalance in sorted(worst.items()):
        if imbalance > limit:
            break
        reached = num
    return reached


def simulated_rows(figures: dict[str, dict[str, Any]], ranks: Sequence[int]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, figure in figures.items():
        for what in ("state_imbalance", "work_imbalance", "least_by_block"):
            row: list[Cell] = [f"{name}.{what}"]
            row += [f"{figure[what][str(num)]:.2f}" for num in ranks]
            row += [figure["ranks_within_tenth"], figure["worst_over_least"], f"{figure['assignment_seconds']:.2f}"]
            rows.append(row)
    return rows


def needed_row(needs: Needs) -> list[Cell]:
    low = [needs.most_state_bytes.get(dtype) for dtype in ("bfloat16", "int4")]
    return [
        f"{needs.training.name}.{needs.preconditioner}",
        needs.mean_adamw_bytes / _GIGA,
        needs.mean_state_bytes["float32"] / _GIGA,
        needs.most_state_bytes["float32"] / _GIGA,
        *("-" if nbytes is None else nbytes / _GIGA for nbytes in low),
        needs.most_working_bytes / _GIGA,
        needs.least_imbalance,
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
    "most bf16",
    "most int4",
    "working GB",
    "least imbalance",
    "work % of model",
    "slowest %",
    "FSDP sends GB",
    "formula GB",
    "we send GB",
    "most GB moved",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--preconditioners", nargs="+", choices=PRECONDITIONERS, default=list(PRECONDITIONERS))
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="measured numbers of ranks")
    parser.add_argument("--width", type=int, default=256, help="of the measured GPT")
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
    simulated_ranks = SIMULATED_RANKS
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
        claims = list(next(iter(figures["measured"].values()))["ratios"])
        columns = ["measured", *(f"{mode} ms" for mode in MODES), "slowest share", *claims]
        tables.append((columns, measured_rows(figures["measured"])))
        for name, figure in figures["measured"].items():
            ratios |= {f"{claim}.{name}": ratio for claim, ratio in figure["ratios"].items()}
    if "simulated" in options.parts:
        for model in options.models or SIMULATED_MODELS:
            for preconditioner in options.preconditioners:
                for plain in ("local", "owned"):
                    name = f"{model}.{preconditioner}.{plain}"
                    found = imbalances(model, preconditioner, tables=plain, ranks=simulated_ranks)
                    figures["simulated"][name] = found
                    ratios[f"ranks_within_tenth.{name}"] = found["ranks_within_tenth"]
        columns = ["max/mean over ranks", *map(str, simulated_ranks), "within 1.1", "over least", "seconds"]
        tables.append((columns, simulated_rows(figures["simulated"], simulated_ranks)))
        ratios["worst_over_least"] = max(f["worst_over_least"] for f in figures["simulated"].values())
        ratios["assignment_seconds"] = max(f["assignment_seconds"] for f in figures["simulated"].values())
    if "needed" in options.parts:
        models = tuple(options.models or {training.model for training in TRAININGS})
        needs = list(all_needs(models, tuple(options.preconditioners)))
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
