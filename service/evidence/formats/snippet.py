"""A config as Python that a user pastes into a training script, with its evidence on top."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from service.evidence.formats.constructor import Constructor, call, literal, split
from service.evidence.formats.torchrun import torchrun_line
from service.evidence.in_words.wording import optimizer_title
from service.evidence.in_words.words import evidence_lines
from service.evidence.parameter_groups import OwnSettings, is_makeable, needs_torch, python_of_groups
from service.evidence.recommended import PasteableConfig, RecommendedConfig
from service.inert import one_line
from trainers.config import DEFAULT_DECAY_FRACTION

_CLASSES = {
    "shampoo": ("shampoo", "Shampoo"),
    "adamw": ("torch.optim", "AdamW"),
    "sgd": ("torch.optim", "SGD"),
    "muon": ("trainers.peers.muon", "MuonWithAdamW"),
    "soap-peer": ("pytorch_optimizer", "SOAP"),
    "lora-rite": ("shampoo", "LoraRite"),
}
"""The module and the name of each optimizer."""

_GROUPS_OF = {"muon": "param_groups", "lora-rite": "lora_param_groups"}
"""The functions of `shampoo` that make groups for optimizers which need them."""

_DECAYS = {
    "cosine": "0.5 * (1 + math.cos(math.pi * progress))",
    "linear": "1 - progress",
    "constant": "1.0",
    "wsd": "min(max((NUM_SCHEDULE_STEPS - step) / NUM_DECAY_STEPS, 0.0), 1.0)",
}
"""The factor after the warm-up, as `trainers.schedule.factor` has it."""


FRONT_SHOWN = 8
"""Trials of a front that the head of a snippet names, and the page of a recommendation."""
INSTALLED_BY = "# pip install shampoo-tuner"
"""Beside the import: the error of a missing module names `shampoo`, and the index has another package of that name."""


def python_snippet(recommendation: RecommendedConfig) -> str:
    """Python to paste after `model`: the optimizer, its schedule and one training step, with the evidence on top."""
    header = evidence_header(recommendation)
    return trial_snippet(recommendation, header=header, command=torchrun_line(recommendation))


def evidence_header(recommendation: RecommendedConfig) -> list[str]:
    """The comment above a recommended config, in lines: what it is for, and the evidence."""
    evidence, options = recommendation.evidence, recommendation.workload_options
    title = optimizer_title(recommendation.optimizer)
    header = [f"{title} for {recommendation.workload}, to {evidence.direction} {evidence.metric}"]
    if options:
        # Tuned or chosen, they are part of what the arguments fit, and the code below cannot set them.
        named = ", ".join(f"{name}={value!r}" for name, value in sorted(options.items()))
        header.append(f"with the workload's options {named}")
    return [*header, *evidence_lines(evidence, num_front=FRONT_SHOWN)]


def trial_snippet(
    config: PasteableConfig,
    *,
    header: Sequence[str],
    command: str | None = None,
    constructor: Constructor | None = None,
) -> str:
    """Python source that needs only `model`, and gives `optimizer`, `scheduler` and `training_step(loss)`.

    Numbers are written so that they read back exactly. Parameters that had settings of their own have them here, too;
    where only the workload's class knows these, a comment at the constructor says so.

    Args:
        header: lines of the comment on top.
        command: a line for a shell that trains the same, for the end of that comment.
        constructor: makes another package's optimizer in place of the config's own; with `optimizers`, the script has
            `schedulers`.
    """
    schedule, training = config.schedule, config.training
    decay, clip, averaging = schedule["decay"], training["gradient_clip_norm"], training.get("averaging")
    groups = config.parameter_groups if is_makeable(config.parameter_groups) else []
    parameters = "parameter_groups(model)" if groups else "model.parameters()"
    # As `trainers.optimizers.parameter_groups` has it.
    groups_of = None if groups else _GROUPS_OF.get(config.optimizer)
    if groups_of is not None:
        parameters = f"{groups_of}(model)"
    from_shampoo = [] if groups_of is None else [groups_of]
    if constructor is None:
        module, class_name = _CLASSES[config.optimizer]
        made = call(f"optimizer = {class_name}", parameters, config.config)
        imports = [] if module == "shampoo" else [f"from {module} import {class_name}"]
        from_shampoo += [class_name] if module == "shampoo" else []
        if averaging is not None:
            made = [*made, *_averaging(averaging)]
            from_shampoo.append("WeightAveraging")
    else:
        as_groups = parameters if groups or groups_of is not None else f'[{{"params": {parameters}}}]'
        imports, made = list(constructor.imports), [*split(as_groups), *constructor.lines]
    third_party = [*imports, "from torch.optim.lr_scheduler import LambdaLR"]
    if from_shampoo:
        in_order = sorted(from_shampoo, key=lambda name: (name.islower(), name))  # classes first
        third_party.insert(0, f"from shampoo import {', '.join(in_order)}  {INSTALLED_BY}")
    if clip is not None or needs_torch(groups):
        third_party.insert(0, "import torch")
    standard = [line for line in third_party if line == "import math"]
    standard = ["import math", ""] if decay == "cosine" or standard else []
    is_list = constructor is not None and constructor.makes_several
    return "\n".join(
        [
            *comment([*header, *conditions(training)]),
            *([] if command is None else [marked(command)]),
            *standard,
            *(line for line in third_party if line != "import math"),
            "",
            *(["", *python_of_groups(groups), "", ""] if groups else comment(_lacking(config.parameter_groups))),
            *made,
            "",
            *lengths(schedule, training),
            "",
            "",
            "def learning_rate_factor(step):",
            "    if step < NUM_WARMUP_STEPS:",
            "        return (step + 1) / (NUM_WARMUP_STEPS + 1)",
            *_progress(decay),
            f"    return {_DECAYS[decay]}",
            "",
            "",
            "schedulers = [LambdaLR(optimizer, learning_rate_factor) for optimizer in optimizers]"
            if is_list
            else "scheduler = LambdaLR(optimizer, learning_rate_factor)",
            "",
            "",
            "def training_step(loss):",
            '    """Call with the loss of each batch."""',
            "    model.zero_grad(set_to_none=True)" if is_list else "    optimizer.zero_grad(set_to_none=True)",
            "    loss.backward()",
            *([] if clip is None else [f"    torch.nn.utils.clip_grad_norm_(model.parameters(), {clip!r})"]),
            *(
                ["    for one in (*optimizers, *schedulers):", "        one.step()"]
                if is_list
                else ["    optimizer.step()", "    scheduler.step()"]
            ),
            "",
        ]
    )


def marked(line: str) -> str:
    """A line as a comment, uncut: to be copied."""
    return f"# {one_line(line)}"


def comment(lines: Sequence[str]) -> list[str]:
    """Lines of text as those of a comment, folded."""
    # On one line whatever it holds: names come from users, and a line feed would end the comment.
    return [f"# {part}" for line in lines for part in textwrap.wrap(one_line(line), 98, subsequent_indent="  ")]


def _lacking(own_settings: Sequence[OwnSettings]) -> list[str]:
    """The difference between what was measured and a constructor that is given all parameters alike."""
    if not own_settings:
        return []
    return [
        "NOT AS MEASURED: the trials gave some parameters settings of their own, and here all get the same:",
        *(f"- {one.words}" for one in own_settings),
        "Pass parameter groups with these settings in place of model.parameters().",
    ]


def conditions(training: Mapping[str, Any]) -> list[str]:
    """The parts of the trial beside the optimizer that were there when its config proved good."""
    found: list[str] = []
    if training.get("precision", "float32") != "float32":
        found.append(f"Trained in {training['precision']} mixed precision.")
    if training.get("accumulation_steps", 1) > 1:
        found.append(f"Each step's batch in {training['accumulation_steps']} parts, their gradients added up.")
    if training.get("compression") is not None:
        settings = ", ".join(f"{name}={value}" for name, value in training["compression"].items())
        found.append(f"Gradients compressed by PowerSGD ({settings}).")
    return found


def _averaging(averaging: Mapping[str, Any]) -> list[str]:
    arguments = "".join(f", {name}={literal(value)}" for name, value in averaging["arguments"].items())
    return [
        f"optimizer = WeightAveraging(optimizer, {averaging['method']!r}{arguments})",
        "# Evaluate and export the model inside `with optimizer.averaged_weights():`.",
    ]


def lengths(schedule: Mapping[str, Any], training: Mapping[str, Any]) -> list[str]:
    """The constants of the schedule, as `trainers.schedule.factor` computes them."""
    num_steps, horizon = training["num_steps"], schedule.get("horizon", 1.0)
    num_schedule_steps = max(1, round(horizon * num_steps))
    num_warmup_steps = min(round(schedule["warmup_fraction"] * num_schedule_steps), num_schedule_steps - 1)
    lines = [f"NUM_STEPS = {num_steps}  # of {training['batch_size']} examples, all ranks together"]
    if schedule["decay"] != "constant":
        lines.append(f"NUM_SCHEDULE_STEPS = {'NUM_STEPS' if num_schedule_steps == num_steps else num_schedule_steps}")
    lines.append(f"NUM_WARMUP_STEPS = {num_warmup_steps}")
    if schedule["decay"] == "wsd":
        fraction = schedule.get("decay_fraction") or DEFAULT_DECAY_FRACTION
        num_decay_steps = max(1, round(fraction * num_schedule_steps))
        lines.append(f"NUM_DECAY_STEPS = {min(num_decay_steps, num_schedule_steps - num_warmup_steps)}")
    return lines


def _progress(decay: str) -> list[str]:
    if decay in ("constant", "wsd"):
        return []
    return ["    progress = min((step - NUM_WARMUP_STEPS) / (NUM_SCHEDULE_STEPS - NUM_WARMUP_STEPS), 1.0)"]
