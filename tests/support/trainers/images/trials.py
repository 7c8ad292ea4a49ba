"""Trials of a second on the images of `data.py`, and their batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainers.config import Measurement, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workloads.images.image_folder import ImageFolder
from trainers.workloads.registry import load

NUM_TRAIN, NUM_VALIDATION = 40, 12
"""Images per class."""


def options(path: Path, **changes: Any) -> dict[str, Any]:
    """Options of a trial that takes a second."""
    return {
        "path": str(path),
        "architecture": "vit-nano",
        "image_size": 16,
        "patch_size": 8,
        "num_workers": 0,
        **changes,
    }


def folder(path: Path, **changes: Any) -> ImageFolder:
    workload = load("image-folder", options(path, **changes))
    assert isinstance(workload, ImageFolder)
    return workload


def trial(
    path: Path, *, optimizer: str = "adamw", workload: dict[str, Any] | None = None, **fields: Any
) -> TrialConfig:
    """12 steps, measured every 4."""
    arguments = {"lr": 1e-3, "weight_decay": 0.1}
    return TrialConfig(
        **{
            "workload": "image-folder",
            "workload_options": options(path, **(workload or {})),
            "optimizer": OptimizerConfig(optimizer, arguments),  # type: ignore[arg-type]  # a name
            "num_steps": 12,
            "evaluate_every": 4,
            "batch_size": 12,
            **fields,
        }
    )


Example = tuple[bytes, int]


def examples(batch: tuple[Tensor, Tensor]) -> list[Example]:
    images, labels = batch
    return [(image.numpy().tobytes(), label) for image, label in zip(images, labels.tolist(), strict=True)]


def stream(
    workload: ImageFolder, *, seed: int = 1, world_size: int = 1, batch_size: int = 12, start_step: int = 0
) -> Iterator[list[Example]]:
    """The global batches, put together from all ranks' shares."""
    shares = [
        workload.train_batches(
            batch_size=batch_size, seed=seed, rank=rank, world_size=world_size, start_step=start_step
        )
        for rank in range(world_size)
    ]
    for batches in zip(*shares, strict=True):
        assert len({len(images) for images, _ in batches}) == 1
        yield [example for batch in batches for example in examples(batch)]


def evaluation(workload: ImageFolder, world_size: int = 1) -> dict[str, tuple[float, float]]:
    """The validation metrics, summed over ranks."""
    torch.manual_seed(0)
    model = workload.build_model().eval()
    nn.init.normal_(model.get_submodule("head").get_parameter("weight"))  # so that it distinguishes classes
    with torch.no_grad():
        shares = [workload.evaluate(model, rank=r, world_size=world_size, device="cpu") for r in range(world_size)]
    return {
        name: (sum(share[name][0] for share in shares), sum(share[name][1] for share in shares)) for name in shares[0]
    }


def ran(config: TrialConfig, directory: Path | None = None) -> list[Measurement]:
    return list(train(config, single_process_context(checkpoint_directory=directory)))
