"""Bodies of invalid jobs, each with the field at fault."""

from __future__ import annotations

from typing import Any

import httpx

WORKLOAD = {"workload": {"name": "digits-mlp"}}


def only_error(http: httpx.Client, fields: dict[str, Any]) -> tuple[str, str]:
    """Field and message of the one error with which a job of these fields is refused."""
    answer = http.post("/v1/jobs", json={**WORKLOAD, **fields})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    return error["field"], error["message"]


def own_space(**changes: Any) -> dict[str, Any]:
    parameter = {"type": "float", "name": "lr", "low": 0.001, "high": 0.1, "scale": "log", **changes}
    return {**WORKLOAD, "search_space": {"optimizer": "shampoo", "parameters": [parameter]}}


def several(*metrics: str, **fields: Any) -> dict[str, Any]:
    """A job with these objectives beside the validation loss."""
    return {**WORKLOAD, "objectives": [{"metric": metric} for metric in ("validation_loss", *metrics)], **fields}


PRECISION = {"type": "categorical", "name": "training.precision", "choices": ["float32", "bfloat16"]}


def population(pruner: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {**WORKLOAD, "budget": {"num_trials": 20}, "pruner": {"name": "pbt", **(pruner or {})}, **fields}


IMPOSSIBLE: dict[str, tuple[object, str]] = {
    "no workload": ({}, "workload"),
    "not an object": ([1], "body"),
    "null": (None, "body"),
    "unknown workload": ({"workload": {"name": "imagenet"}}, "workload.name"),
    "unknown workload option": (
        {"workload": {"name": "digits-mlp", "options": {"layers": 3}}},
        "workload.options.layers",
    ),
    "more layers than a process can build": (
        {"workload": {"name": "digits-mlp", "options": {"depth": 10**9}}},
        "workload.options.depth",
    ),
    "unknown field": ({**WORKLOAD, "bugdet": {}}, "bugdet"),
    "unknown nested field": ({**WORKLOAD, "budget": {"num_trails": 3}}, "budget.num_trails"),
    "negative budget": ({**WORKLOAD, "budget": {"num_trials": -3}}, "budget.num_trials"),
    "no trials": ({**WORKLOAD, "budget": {"num_trials": 0}}, "budget.num_trials"),
    "one trial with a baseline": ({**WORKLOAD, "budget": {"num_trials": 1}}, "budget.num_trials"),
    "a sliver of a CPU": ({**WORKLOAD, "resources": {"cpus_per_worker": 1e-9}}, "resources.cpus_per_worker"),
    "a GPU and a half": ({**WORKLOAD, "resources": {"gpus_per_worker": 1.5}}, "resources.gpus_per_worker"),
    "a sliver of a GPU": ({**WORKLOAD, "resources": {"gpus_per_worker": 1e-6}}, "resources.gpus_per_worker"),
    "half a GPU for each of two ranks": (
        {**WORKLOAD, "resources": {"gpus_per_worker": 0.5, "workers_per_trial": 2}},
        "resources.gpus_per_worker",
    ),
    "no memory": ({**WORKLOAD, "resources": {"memory_per_worker": 0}}, "resources.memory_per_worker"),
    "memory in words": ({**WORKLOAD, "resources": {"memory_per_worker": "8GB"}}, "resources.memory_per_worker"),
    "none of a custom resource": (
        {**WORKLOAD, "resources": {"custom_resources": {"tpu": 0}}},
        "resources.custom_resources.tpu",
    ),
    "a custom resource in words": (
        {**WORKLOAD, "resources": {"custom_resources": {"tpu": "all"}}},
        "resources.custom_resources.tpu",
    ),
    "CPUs as a custom resource": (
        {**WORKLOAD, "resources": {"custom_resources": {"CPU": 1}}},
        "resources.custom_resources.CPU",
    ),
    "custom resources in a list": (
        {**WORKLOAD, "resources": {"custom_resources": ["tpu"]}},
        "resources.custom_resources",
    ),
    "negative time": ({**WORKLOAD, "budget": {"wall_clock_seconds": -1}}, "budget.wall_clock_seconds"),
    "too many steps": ({**WORKLOAD, "training": {"num_steps": 10**12}}, "training.num_steps"),
    "an enormous seed": ({**WORKLOAD, "training": {"seed": 10**400}}, "training.seed"),
    "indivisible batch": (
        {**WORKLOAD, "training": {"batch_size": 5}, "resources": {"workers_per_trial": 2}},
        "training.batch_size",
    ),
    "a confirmation of nothing": ({**WORKLOAD, "confirmation": {"top_k": 0}}, "confirmation.top_k"),
    "a confirmation with one seed": ({**WORKLOAD, "confirmation": {"num_seeds": 1}}, "confirmation.num_seeds"),
    "a confirmation of text": ({**WORKLOAD, "confirmation": "yes"}, "confirmation"),
    "an unknown field of the confirmation": ({**WORKLOAD, "confirmation": {"seeds": [1]}}, "confirmation.seeds"),
    "more to confirm than the search has": (
        {**WORKLOAD, "budget": {"num_trials": 4}, "confirmation": {"top_k": 4}},
        "confirmation.top_k",
    ),
    "unknown metric": ({**WORKLOAD, "objectives": [{"metric": "bleu"}]}, "objectives[0].metric"),
    "unknown second metric": (several("step_seconds", "bleu"), "objectives[2].metric"),
    "an objective twice": (several("step_seconds", "step_seconds"), "objectives[2].metric"),
    "the first objective again": (several("validation_loss"), "objectives[1].metric"),
    "a second objective that needs a target": (several("seconds_to_target"), "target"),
    "a summary of nothing": ({**WORKLOAD, "objectives": [{"metric": "best_"}]}, "objectives[0].metric"),
    "five objectives": (
        several("step_seconds", "train_loss", "peak_memory_bytes", "optimizer_share"),
        "objectives",
    ),
    "an objective that is no object": ({**WORKLOAD, "objectives": ["step_seconds"]}, "objectives[0]"),
    "objectives that are no list": ({**WORKLOAD, "objectives": {"metric": "step_seconds"}}, "objectives"),
    "a metric's target within an objective": (
        {**WORKLOAD, "objectives": [{"metric": "validation_loss", "target": 0.1}]},
        "objectives[0].target",
    ),
    "auto for several objectives": (several("step_seconds", sampler={"name": "auto"}), "sampler.name"),
    "a Gaussian process for several objectives": (several("step_seconds", sampler={"name": "gp"}), "sampler.name"),
    "CMA-ES for several objectives": (several("step_seconds", sampler={"name": "cmaes"}), "sampler.name"),
    "a pruner for several objectives": (several("step_seconds", pruner={"name": "asha"}), "pruner.name"),
    "NSGA-II for one objective": ({**WORKLOAD, "sampler": {"name": "nsga2"}}, "sampler.name"),
    "a population and auto": (population(sampler={"name": "auto"}), "pruner.name"),
    "a population and several objectives": (
        population(objectives=[{"metric": "validation_loss"}, {"metric": "step_seconds"}]),
        "pruner.name",
    ),
    "a population in words": (population({"population": "many"}), "pruner.population"),
    "a population of one": (population({"population": 1}), "pruner.population"),
    "a population without forks": (population({"population": 15}), "pruner.population"),
    "a population of two trials": (population(budget={"num_trials": 3}), "budget.num_trials"),
    "a population that is confirmed": (population(confirmation={}), "confirmation"),
    "a population with rungs": (population({"reduction_factor": 3}), "pruner.reduction_factor"),
    "a population with first steps": (population({"min_steps": 40}), "pruner.min_steps"),
    "an interval of nothing": (population({"interval": 0}), "pruner.interval"),
    "an interval between measurements": (population({"interval": 25}), "pruner.interval"),
    "an interval as long as the trial": (population({"interval": 100_000}), "pruner.interval"),
    "no step to compare at": (
        population(training={"num_steps": 20, "evaluate_every": 20}),
        "training.evaluate_every",
    ),
    "a population with checkpoints of its own time": (
        population(training={"checkpoint_every": 20}),
        "training.checkpoint_every",
    ),
    "a population that keeps one checkpoint": (
        population(training={"keep_checkpoints": 1}),
        "training.keep_checkpoints",
    ),
    "nothing to change in training": (
        population(search_space={"optimizer": "adamw", "parameters": [PRECISION]}),
        "search_space",
    ),
    "nothing to change in the baseline's training": (
        population(baseline={"search_space": {"optimizer": "adamw", "parameters": [PRECISION]}}),
        "baseline.search_space",
    ),
    "pbt with measurements at other steps in each trial": (
        population(training={"evaluate_every_seconds": 5.0}),
        "training.evaluate_every_seconds",
    ),
    "a population without pbt": ({**WORKLOAD, "pruner": {"population": 8}}, "pruner.population"),
    "an interval without pbt": ({**WORKLOAD, "pruner": {"name": "asha", "interval": 20}}, "pruner.interval"),
    "unknown preset": ({**WORKLOAD, "search_space": "sham-poo"}, "search_space"),
    "a space that is a number": ({**WORKLOAD, "search_space": 5}, "search_space"),
    "low above high": (own_space(low=1, high=0.1), "search_space.parameters[0].low"),
    "unknown parameter": (own_space(name="learning_rate"), "search_space.parameters[0].name"),
    "unknown workload option in a space": (own_space(name="workload.layers"), "search_space.parameters[0].name"),
    "unknown sampler": ({**WORKLOAD, "sampler": {"name": "annealing"}}, "sampler.name"),
    "text for a number": ({**WORKLOAD, "budget": {"num_trials": "many"}}, "budget.num_trials"),
    "long name": ({**WORKLOAD, "name": "x" * 201}, "name"),
    "tag that is no text": ({**WORKLOAD, "tags": {"a": 1}}, "tags.a"),
    "too many tags": ({**WORKLOAD, "tags": {f"t{i}": "" for i in range(51)}}, "tags"),
    "NUL in a name": ({**WORKLOAD, "name": "a\0b"}, "name"),
    "NUL in a key": ({**WORKLOAD, "tags": {"a\0b": ""}}, "tags['a\\x00b']"),
    "NUL deep inside": ({"workload": {"name": "digits-mlp", "options": {"o": ["\0"]}}}, "workload.options.o[0]"),
}
