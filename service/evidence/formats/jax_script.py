"""A config as Python for JAX: the schedule of the learning rate, and the gradient transformation of optax."""

from __future__ import annotations

from collections.abc import Sequence

from service.evidence.formats.constructor import Constructor
from service.evidence.formats.snippet import comment, conditions, lengths, marked
from service.evidence.recommended import PasteableConfig

_DECAYS = {
    "cosine": "0.5 * (1 + jnp.cos(jnp.pi * progress))",
    "linear": "1 - progress",
    "constant": "1.0",
    "wsd": "jnp.clip((NUM_SCHEDULE_STEPS - step) / NUM_DECAY_STEPS, 0.0, 1.0)",
}
"""The decays of `snippet`, for a step that is an array."""


def jax_script(
    config: PasteableConfig, constructor: Constructor, *, lr: float, header: Sequence[str], command: str | None
) -> str:
    """Python source that needs optax and JAX, and gives `optimizer`, whose learning rate follows the schedule.

    Args:
        constructor: makes `optimizer` for a function `learning_rate` of the step.
        lr: the learning rate that the schedule has its share of.
        header: lines of the comment on top.
        command: a line for a shell that trains the same, for the end of that comment.
    """
    schedule, clip = config.schedule, config.training["gradient_clip_norm"]
    decay = schedule["decay"]
    lines = [
        *comment([*header, *conditions(config.training)]),
        *([] if command is None else [marked(command)]),
        "import jax.numpy as jnp",
        *(["import optax"] if clip is not None else []),
        *constructor.imports,
        "",
        *lengths(schedule, config.training),
        "",
        "",
        "def learning_rate(step):",
        "    warm_up = (step + 1) / (NUM_WARMUP_STEPS + 1)",
    ]
    if decay in ("cosine", "linear"):
        lines.append(
            "    progress = jnp.clip((step - NUM_WARMUP_STEPS) / (NUM_SCHEDULE_STEPS - NUM_WARMUP_STEPS), 0.0, 1.0)"
        )
    lines += [
        f"    return {lr!r} * jnp.where(step < NUM_WARMUP_STEPS, warm_up, {_DECAYS[decay]})",
        "",
        "",
        *constructor.lines,
        *([] if clip is None else [f"optimizer = optax.chain(optax.clip_by_global_norm({clip!r}), optimizer)"]),
        "",
    ]
    return "\n".join(lines)
