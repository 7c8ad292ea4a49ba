"""Costs of a step beyond its arithmetic: kernel launches, products, waits of the host, state and scratch memory.

    python -m tests.benchmarks.steps.step_counts --models gpt2 resnet50 --preconditioner soap --block 768

By default on the meta device, which needs neither an accelerator nor the model's memory and takes the path of one
(`counts` says how). `--device cpu` runs the step that the CPU takes, in chunks that fit the cache, in one thread; with
`--device cuda` the profiler counts kernels and waits as well. A refresh step is one that refreshes everything.

    operations                of aten, apart from views and allocations; on lists of tensors one for the whole list
    launches                  the same, with one for each tensor of a list that torch cannot take together, because
                              blocks of columns are strided
    passes                    what operations other than products read and write, over the weights' bytes; those of
                              fused AdamW are 7
    products_over_formula     products of an ordinary step over 4mn(m + n), for soap and kl 6mn(m + n); below 1 where
                              half of a symmetric product is left out
    state_over_formula        bytes of all state over those of two averages and two matrices for each side

`--peers` counts other packages' steps as well (on the CPU): how far they do the same work.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._pytree import tree_iter

from tests.benchmarks.report import Cell, report
from tests.benchmarks.steps.contestants import NEVER, Contestant, GradientSource, ours, parameters, set_period
from tests.benchmarks.steps.counts import Scratch, StepCounts, allocated_bytes, count_kernels, count_step
from tests.benchmarks.steps.formulas import PRECONDITIONERS, blocks, product_operations, state_bytes
from tests.benchmarks.steps.model_shapes import MODELS, Shapes
from tests.benchmarks.steps.peers import PEERS, build_peer

COLUMNS = (
    "model",
    "optimizer",
    "step",
    "operations",
    "launches",
    "passes",
    "products/formula",
    "host reads",
    "scratch MB",
    "state/formula",
)


def count(contestant: Contestant, shapes: Shapes, *, device: str) -> dict[str, StepCounts]:
    """Counts of an ordinary step and of one that refreshes everything, both after warm-up."""
    source = GradientSource(shapes, device)
    scratch = Scratch()
    found: dict[str, StepCounts] = {}
    for step, kind in enumerate(("first", "refresh", "refresh", "ordinary", "ordinary")):
        contestant.prepare(source, step, refresh=kind != "ordinary")
        found[kind] = count_step(contestant.step, device=device, scratch=scratch)
    return found


def our_contestant(
    params: list[Parameter], *, block: int, preconditioner: str, arguments: dict[str, Any]
) -> Contestant:
    """Ours, refreshing everything or nothing as told."""
    optimizer = ours(params, block=block, preconditioner=preconditioner, **arguments)
    return Contestant("ours", params, (optimizer,), lambda refresh: set_period(optimizer, 1 if refresh else NEVER))


def state_tensors(contestant: Contestant) -> list[Tensor]:
    """Everything in the optimizer's state."""
    states = (state for optimizer in contestant.optimizers for state in optimizer.state.values())
    return [x for state in states for x in tree_iter(state) if isinstance(x, Tensor)]


def figures_of(
    contestant: Contestant, shapes: Shapes, *, block: int, preconditioner: str, device: str
) -> dict[str, Any]:
    """All counts of one optimizer on one model."""
    cut = blocks(shapes, block)
    formula = product_operations(cut, preconditioner)
    found = count(contestant, shapes, device=device)
    figures: dict[str, Any] = {}
    if contestant.name == "ours":
        nbytes = allocated_bytes(state_tensors(contestant))
        figures.update(state_bytes=nbytes, state_over_formula=nbytes / state_bytes(cut, preconditioner))
    for kind in ("ordinary", "refresh"):
        counts = found[kind]
        figures[kind] = {
            "num_operations": counts.num_operations,
            "num_launches": counts.num_launches,
            "operations": dict(counts.operations.most_common()),
            "passes": counts.bytes_moved / sum(param.numel() * param.element_size() for param in contestant.params),
            "floating_point_operations": counts.floating_point_operations,
            "products_over_formula": counts.floating_point_operations / formula,
            "host_reads": dict(counts.host_reads),
            "scratch_bytes": counts.scratch_bytes,
        }
        if device == "cuda":
            source = GradientSource(shapes, device)
            contestant.prepare(source, 0, refresh=kind == "refresh")
            kernels, waits = count_kernels(contestant.step)
            figures[kind].update(num_kernels=kernels, num_waits=waits)
    return figures


def rows_of(model: str, name: str, figures: dict[str, Any]) -> list[Sequence[Cell]]:
    return [
        (
            model,
            name,
            kind,
            figures[kind]["num_operations"],
            figures[kind]["num_launches"],
            figures[kind]["passes"],
            figures[kind]["products_over_formula"],
            sum(figures[kind]["host_reads"].values()),
            figures[kind]["scratch_bytes"] / 1e6,
            figures.get("state_over_formula", "-"),
        )
        for kind in ("ordinary", "refresh")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=["mlp", "resnet50", "gpt2"])
    parser.add_argument("--preconditioner", choices=PRECONDITIONERS, default="shampoo")
    parser.add_argument("--block", type=int, default=256, help="longest side of a block")
    parser.add_argument("--solver", help="default: the member's own")
    parser.add_argument("--device", choices=("meta", "cpu", "cuda"), default="meta")
    parser.add_argument("--peers", nargs="*", choices=sorted(PEERS), default=[], help="with --device cpu or cuda")
    parser.add_argument("--json", type=Path, help="also write the JSON object to this file")
    options = parser.parse_args()
    if options.peers and options.device == "meta":
        parser.error("--peers needs --device cpu or cuda")
    # Modes that count are a thread's own: a pool of solver threads would go uncounted.
    torch.set_num_threads(1)
    figures: dict[str, Any] = {}
    rows: list[Sequence[Cell]] = []
    for model in options.models:
        shapes = MODELS[model]()
        contestants = [
            our_contestant(
                parameters(shapes, options.device),
                block=options.block,
                preconditioner=options.preconditioner,
                arguments={"solver": options.solver} if options.solver else {},
            ),
            *(
                build_peer(name, shapes, block=options.block, device=options.device, compiled=False)
                for name in options.peers
            ),
        ]
        figures[model] = {}
        for contestant in contestants:
            of_one = figures_of(
                contestant,
                shapes,
                block=options.block,
                preconditioner=options.preconditioner,
                device=options.device,
            )
            figures[model][contestant.name] = of_one
            rows += rows_of(model, contestant.name, of_one)
    of_ours = [by_name["ours"] for by_name in figures.values()]
    report(
        "step_counts",
        columns=COLUMNS,
        rows=rows,
        figures={
            "models": figures,
            "preconditioner": options.preconditioner,
            "block": options.block,
            "solver": options.solver,
            "counted_on": options.device,
        },
        ratios={
            "products_over_formula": max(figure["ordinary"]["products_over_formula"] for figure in of_ours),
            "state_over_formula": max(figure["state_over_formula"] for figure in of_ours),
        },
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
