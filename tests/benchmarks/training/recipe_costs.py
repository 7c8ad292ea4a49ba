"""The cost of the recipes of `search_spaces/recipes/`, from shapes alone: memory of a rank, device-hours of a trial.

    python -m tests.benchmarks.training.recipe_costs
    python -m tests.benchmarks.training.recipe_costs --recipes gpt2-124m --products 250 --optimizer-products 25

Nothing is trained and no data is read: models are built without memory, and a pass over one example is counted by
`torch.utils.flop_counter`. The backward pass counts as two, activation checkpointing as one more. The optimizer's state
and operations are `shampoo.cost`'s, for the first default of the search, divided by the ranks where they share them.
Seconds are operations over two assumed rates, of the model's products and of the optimizer's (which are in float32 by
default), so device-hours are as good as those; time for data, communication and evaluation comes on top.

    optimizer_over_model.R     operations of the optimizer's mean step over those of the model's, on a rank
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from service.cli.job_file import read_job_file
from service.domain import Phase
from service.specification.job import JobSpecification
from service.specification.planning import JobPlan, plan_job
from shampoo.cost import estimate
from tests.benchmarks.report import report
from trainers.config import TrialConfig
from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads.clicks.click_log import click_shape
from trainers.workloads.clicks.model import DLRM
from trainers.workloads.clicks.parser import NUM_CATEGORIES, NUM_COUNTS
from trainers.workloads.images.resnet import RESNETS, ResNet
from trainers.workloads.images.vision_transformer import VISION_TRANSFORMERS, VisionTransformer
from trainers.workloads.language.llama import Llama
from trainers.workloads.language.text_lm import transformer_shape
from trainers.workloads.language.transformer import GPT

RECIPES = Path(__file__).parents[3] / "search_spaces" / "recipes"
NUM_CLASSES = 1_000
VOCABULARIES = {"gpt": 50_304, "llama": 32_000}
"""GPT-2's, rounded up as the workload does, and Llama's."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a recipe, for the first default of its search."""

    num_parameters: int
    weight_bytes: int
    """Weights and gradients of a rank."""
    state_bytes: int
    """The optimizer's, of a rank."""
    model_operations: float
    """Operations of the model in a step, of a rank."""
    optimizer_operations: float
    num_steps: int
    num_ranks: int
    num_trials: int

    def device_hours(self, *, products: float, optimizer_products: float) -> float:
        """Device-hours of one trial; rates in operations a second."""
        seconds = self.model_operations / products + self.optimizer_operations / optimizer_products
        return self.num_ranks * self.num_steps * seconds / 3600


def plan_of(path: Path) -> JobPlan:
    return plan_job(JobSpecification.model_validate(read_job_file(path).content))


def model_and_example(name: str, options: Mapping[str, Any]) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A workload's model on the current device, and the input of one example."""
    if name == "image-folder":
        side, architecture = options["image_size"], options["architecture"]
        images = (torch.empty(1, 3, side, side),)
        if architecture in RESNETS:
            return ResNet(RESNETS[architecture], num_classes=NUM_CLASSES), images
        shape = VISION_TRANSFORMERS[architecture]
        patch_size = options["patch_size"] or 16
        vit = VisionTransformer(shape, image_size=side, patch_size=patch_size, num_classes=NUM_CLASSES)
        return vit, images
    if name == "text-lm":
        architecture = options["architecture"]
        names = ("num_blocks", "num_heads", "num_key_value_heads", "width", "context_length")
        overrides = {option: options[option] for option in names}
        transformer = transformer_shape(architecture, options["size"], overrides, options["tie_embeddings"])
        transformer = replace(transformer, num_tokens=VOCABULARIES[architecture])
        tokens = (torch.zeros(1, transformer.context_length, dtype=torch.int64),)
        return (GPT(transformer) if architecture == "gpt" else Llama(transformer)), tokens
    assert name == "click-log"
    names = ("size", "num_buckets", "embedding_width", "bottom_sizes", "top_sizes")
    dlrm = DLRM(click_shape(*(options[option] for option in names)))
    return dlrm, (torch.empty(1, NUM_COUNTS), torch.zeros(1, NUM_CATEGORIES, dtype=torch.int64))


def cost_of(plan: JobPlan) -> Cost:
    """The cost of a recipe."""
    space = plan.spaces[Phase.SEARCH]
    config = plan.trial_config(Phase.SEARCH, space.defaults())
    description, num_ranks = plan.workload, plan.specification.resources.workers_per_trial
    options = {name: option.default for name, option in description.options.items()} | dict(config.workload_options)
    with torch.device("meta"):
        model, example = model_and_example(config.workload, options)
    with FlopCounterMode(display=False) as counted:
        model(*example)
    num_passes = 3 + config.activation_checkpointing
    groups = groups_by_rule(model, description.parameter_groups, options=options)
    costs = [
        estimate(
            [tuple(p.shape) for p in group["params"]],
            device="cuda",
            **arguments_of(config, {name: value for name, value in group.items() if name != "params"}),
        )
        for group in groups
        if group["params"]
    ]
    is_sharded = config.parallelism.mode != "ddp"
    is_shared = is_sharded or config.optimizer.arguments.get("distributed") == "lossless"
    shards, sharers = (num_ranks if is_sharded else 1), (num_ranks if is_shared else 1)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return Cost(
        num_parameters=num_parameters,
        weight_bytes=2 * 4 * num_parameters // shards,
        state_bytes=sum(cost.state_bytes for cost in costs) // sharers,
        model_operations=num_passes * counted.get_total_flops() * config.batch_size / num_ranks,
        optimizer_operations=sum(cost.operations_per_step for cost in costs) / sharers,
        num_steps=config.num_steps,
        num_ranks=num_ranks,
        num_trials=plan.num_trials,
    )


def arguments_of(config: TrialConfig, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizer's arguments of a group with these settings of its own."""
    arguments = {name: value for name, value in config.optimizer.arguments.items() if name != "lr"}
    if changes.get("preconditioner", arguments.get("preconditioner")) == "none":
        kept = ("betas", "weight_decay", "weight_decay_type", "momentum", "nesterov")
        arguments = {name: value for name, value in arguments.items() if name in kept}
    return {**arguments, **changes}


def main() -> None:
    known = sorted(path.stem for path in RECIPES.glob("*.yaml"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--recipes", nargs="+", default=known, choices=known, help="(default: all)")
    parser.add_argument("--products", type=float, default=300.0, help="10¹² operations a second of the model")
    parser.add_argument("--optimizer-products", type=float, default=30.0, help="10¹² a second of the optimizer")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    costs = {name: cost_of(plan_of(RECIPES / f"{name}.yaml")) for name in options.recipes}
    hours = {
        name: cost.device_hours(products=1e12 * options.products, optimizer_products=1e12 * options.optimizer_products)
        for name, cost in costs.items()
    }
    columns = ("recipe", "parameters, 1e6", "weights, GB", "state, GB", "optimizer over model", "trials")
    report(
        "recipe_costs",
        columns=[*columns, "device-hours of a trial", "of the job, at most"],
        rows=[
            [
                name,
                cost.num_parameters / 1e6,
                cost.weight_bytes / 1e9,
                cost.state_bytes / 1e9,
                f"{cost.optimizer_operations / cost.model_operations:.2%}",
                cost.num_trials,
                hours[name],
                hours[name] * cost.num_trials,
            ]
            for name, cost in costs.items()
        ],
        figures={"device_hours_of_a_trial": hours, "products_per_second": 1e12 * options.products},
        ratios={
            f"optimizer_over_model.{name}": cost.optimizer_operations / cost.model_operations
            for name, cost in costs.items()
        },
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
