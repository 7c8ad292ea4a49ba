"""Every recipe is a job that the service takes, and trains at a tiny size as it stands there otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.cli.job_file import apply_settings, read_job_file
from service.specification.job import JobSpecification
from service.specification.planning import JobPlan, plan_job
from tests.benchmarks.training.recipe_costs import RECIPES, cost_of, plan_of
from tests.support.readmes import command_lines
from tests.support.trainers import small_data
from trainers.loop import train
from trainers.memory.prediction import predicted_bytes
from trainers.ranks.context import single_process_context

NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml"))

BRIEF = (
    "training.num_steps=2",
    "training.batch_size=8",
    "training.accumulation_steps=1",
    "training.evaluate_every=2",
    "training.compile=false",
)
"""The settings by which every recipe is shortened; all else of its training stays."""
SMALL_IMAGES = ("workload.options.image_size=16", "workload.options.num_workers=0")
SMALL_RESNET = (*SMALL_IMAGES, "workload.options.architecture=resnet20")
SMALL_TEXT = ("workload.options.tokenizer=byte", "workload.options.size=tiny")
TINY: Mapping[str, tuple[str, ...]] = {
    "imagenet-resnet50": SMALL_RESNET,
    "imagenet-resnet50-ablation": SMALL_RESNET,
    "imagenet-vit-s16": (*SMALL_IMAGES, "workload.options.architecture=vit-nano", "workload.options.patch_size=8"),
    "gpt2-124m": SMALL_TEXT,
    "llama-1b": (
        *SMALL_TEXT,
        *(f"workload.options.{name}=null" for name in ("num_blocks", "num_heads", "num_key_value_heads")),
        "workload.options.width=64",
        "workload.options.context_length=64",
    ),
    "dlrm": ("workload.options.size=tiny",),
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By workload, options that name a small set of data."""
    return small_data.of_recipes(tmp_path_factory.mktemp("data"))


def tiny(name: str, paths: Mapping[str, Mapping[str, Any]]) -> JobPlan:
    content = read_job_file(RECIPES / f"{name}.yaml").content
    content["workload"]["options"] |= paths[content["workload"]["name"]]
    return plan_job(JobSpecification.model_validate(apply_settings(content, [*BRIEF, *TINY[name]])))


def test_every_recipe_has_a_tiny_size() -> None:
    assert sorted(TINY) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_is_a_job_whose_cost_is_known(name: str) -> None:
    plan = plan_of(RECIPES / f"{name}.yaml")
    cost = cost_of(plan)
    assert plan.num_steps == cost.num_steps
    assert cost.state_bytes > cost.weight_bytes // 2
    assert cost.device_hours(products=1e14, optimizer_products=1e13) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_at_a_tiny_size(name: str, paths: dict[str, dict[str, Any]]) -> None:
    plan = tiny(name, paths)
    configs = {side: plan.trial_config(side, space.defaults()) for side, space in plan.spaces.items()}
    assert all(predicted_bytes(config) > 0 for config in configs.values())
    (measurement,) = train(configs["search"], single_process_context())  # baselines are trained everywhere else
    assert measurement.step == 2
    assert measurement.metrics["train_loss"] > 0


def test_the_ablation_changes_one_choice_at_a_time() -> None:
    plan = plan_of(RECIPES / "imagenet-resnet50-ablation.yaml")
    (space,) = plan.spaces.values()
    start = space.defaults()
    (pinned,) = plan.pinned.values()
    assert [sum(trial[name] != start[name] for name in start) for trial in pinned] == [1] * len(pinned)
    # With the defaults and those of each other grafting they are all that the job tries.
    assert len(space.branch_defaults()) + len(pinned) == plan.num_trials
    whole = plan_of(RECIPES / "imagenet-resnet50.yaml")
    config, of_whole = (p.trial_config("search", p.spaces["search"].defaults()) for p in (plan, whole))
    assert config.optimizer == of_whole.optimizer
    assert (config.num_steps, config.schedule) == (of_whole.num_steps, of_whole.schedule)


def test_the_manual_names_each_recipe() -> None:
    text = (Path(RECIPES).parent / "README.md").read_text()
    assert [name for name in NAMES if f"| `{name}` |" not in text] == []


def test_the_manuals_command_names_every_file_that_the_recipe_reads() -> None:
    (words,) = [words for words in command_lines("search_spaces/README.md") if "gpt2-124m.yaml" in " ".join(words)]
    set_there = {word.partition("=")[0] for word in words}
    options = read_job_file(RECIPES / "gpt2-124m.yaml").content["workload"]["options"]
    named = {f"workload.options.{name}" for name, value in options.items() if str(value).startswith("/")}
    assert named
    assert named <= set_there
