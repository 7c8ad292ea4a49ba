"""A language model that was trained on one kind of text, and another kind to adapt it to: no download."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trainers.config import Json, OptimizerConfig, TrialConfig
from trainers.ranks.context import single_process_context
from trainers.trial import build_trial
from trainers.workload.batches import train_batches
from trainers.workloads.huggingface.architecture import quiet
from trainers.workloads.registry import load

WORKLOAD = "huggingface"
CONFIG: dict[str, Json] = {
    "n_layer": 2,
    "n_head": 4,
    "n_embd": 128,
    "n_positions": 64,
    "vocab_size": 257,  # bytes, and the token that ends a document
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
NUM_STEPS = 1000
"""Steps of the training on Python."""
RANK = 8
MAX_BYTES = 4_000_000
"""Most bytes of the text to adapt to."""


def adapters_to_train(
    directory: Path,
    *,
    sizes: Mapping[str, Json] = CONFIG,
    num_steps: int = NUM_STEPS,
    source: Path | None = None,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """Options of `huggingface` that train adapters of rank 8 of a small GPT-2, which AdamW has trained on the source of
    Python's standard library, on the headers of torch, which are C++.

    Args:
        directory: where model and text are written to.
        sizes: the config of the model.
        num_steps: of the training on Python.
        source: a directory with text in place of all of the library's.
        max_bytes: of the text to adapt to.
    """
    config = TrialConfig(
        workload=WORKLOAD,
        workload_options={"architecture": "gpt2", "config": dict(sizes), **({"path": str(source)} if source else {})},
        optimizer=OptimizerConfig("adamw", {"lr": 5e-3, "weight_decay": 0.1}),
        num_steps=num_steps,
        evaluate_every=num_steps,
        batch_size=32,
    )
    workload = load(WORKLOAD, config.workload_options)
    torch.manual_seed(0)
    trial = build_trial(config, workload, single_process_context())
    model = trial.parallel.model
    batches = train_batches(workload, batch_size=config.batch_size, seed=0, rank=0, world_size=1, start_step=0)
    for step in range(num_steps):
        for group in trial.optimizer.param_groups:
            group["lr"] = 5e-3 * min((step + 1) / 20, 1 - step / num_steps)
        trial.optimizer.zero_grad()
        workload.loss(model, next(batches)).backward()
        trial.optimizer.step()
    with quiet():
        model.save_pretrained(directory / "model")  # type: ignore[operator]  # the library's own method
    (directory / "text").mkdir()
    headers = sorted((Path(torch.__file__).parent / "include" / "torch" / "csrc").rglob("*.h"))
    text = "\n".join(header.read_text(errors="replace") for header in headers).encode()[:max_bytes]
    (directory / "text" / "headers.txt").write_bytes(text)
    return options_of(directory)


def options_of(directory: Path) -> dict[str, Any]:
    """The options that train the adapters which `adapters_to_train` has prepared in a directory."""
    return {
        "model_path": str(directory / "model"),
        "weights": "pretrained",
        "path": str(directory / "text"),
        "cache_directory": str(directory / "cache"),
        "lora_rank": RANK,
    }
