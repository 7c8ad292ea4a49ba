"""Renders an optimizer config as Python that a user pastes into a training script."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

_CLASSES = {
    "shampoo": ("from shampoo import Shampoo", "Shampoo"),
    "adamw": ("from torch.optim import AdamW", "AdamW"),
    "sgd": ("from torch.optim import SGD", "SGD"),
}

_DECAYS = {
    "cosine": "0.5 * (1 + math.cos(math.pi * progress))",
    "linear": "1 - progress",
    "constant": "1.0",
}
"""The factor after the warm-up, as `trainers.schedule.factor` has it."""


def render(
    *,
    optimizer: str,
    arguments: Mapping[str, Any],
    schedule: Mapping[str, Any],
    training: Mapping[str, Any],
    header: Sequence[str],
) -> str:
    """Python source that needs only `model`, and gives `optimizer`, `scheduler` and `training_step(loss)`.

    Args:
        arguments: of the optimizer's constructor; numbers are written so that they read back exactly.
        schedule: `warmup_fraction` and `decay`.
        training: `num_steps`, `batch_size` and `gradient_clip_norm`.
        header: lines of the comment on top.
    """
    imports, class_name = _CLASSES[optimizer]
    num_steps, decay = training["num_steps"], schedule["decay"]
    num_warmup_steps = min(round(schedule["warmup_fraction"] * num_steps), num_steps - 1)
    comment = [wrapped for line in header for wrapped in textwrap.wrap(_printable(line), 98, subsequent_indent="  ")]
    clip = training["gradient_clip_norm"]
    standard = ["import math", ""] if decay == "cosine" else []
    third_party = ["import torch", imports, "from torch.optim.lr_scheduler import LambdaLR"]
    if clip is None:
        third_party.remove("import torch")
    return "\n".join(
        [
            *(f"# {line}" for line in comment),
            *standard,
            *third_party,
            "",
            f"optimizer = {class_name}(",
            "    model.parameters(),",
            *(f"    {name}={_literal(value)}," for name, value in arguments.items()),
            ")",
            "",
            f"NUM_STEPS = {num_steps}  # of batch size {training['batch_size']}",
            f"NUM_WARMUP_STEPS = {num_warmup_steps}",
            "",
            "",
            "def learning_rate_factor(step):",
            "    if step < NUM_WARMUP_STEPS:",
            "        return (step + 1) / (NUM_WARMUP_STEPS + 1)",
            *_progress(decay),
            f"    return {_DECAYS[decay]}",
            "",
            "",
            "scheduler = LambdaLR(optimizer, learning_rate_factor)",
            "",
            "",
            "def training_step(loss):",
            '    """Call with the loss of each batch."""',
            "    optimizer.zero_grad(set_to_none=True)",
            "    loss.backward()",
            *([] if clip is None else [f"    torch.nn.utils.clip_grad_norm_(model.parameters(), {clip!r})"]),
            "    optimizer.step()",
            "    scheduler.step()",
            "",
        ]
    )


def _progress(decay: str) -> list[str]:
    if decay == "constant":
        return []
    return ["    progress = min((step - NUM_WARMUP_STEPS) / (NUM_STEPS - NUM_WARMUP_STEPS), 1.0)"]


def _literal(value: Any) -> str:
    # Optimizers document pairs as tuples; JSON has only lists.
    return repr(tuple(value)) if isinstance(value, list) else repr(value)


def _printable(line: str) -> str:
    """One line whatever it holds: names come from users, and a newline would end the comment."""
    escaped = json.dumps(line, ensure_ascii=False)[1:-1].replace('\\"', '"')
    return escaped.encode("utf-8", "backslashreplace").decode("utf-8")
