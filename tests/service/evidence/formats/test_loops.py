"""What is pasted, in the training loops of others: the manual's code gives the weights that `training_step` gives."""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from service.evidence.formats.written import Format, written
from tests.support.readmes import blocks
from tests.support.service.confirmed import recommendation_with

NUM_EXAMPLES = 96
LOOPS = {
    "transformers": "import Trainer",
    "accelerate": "import Accelerator",
    "lightning": "import pytorch_lightning",
}
"""What tells the manual's block of a library from others."""


class Model(nn.Module):
    """A classifier that gives its own loss, as those of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        for parameter in self.parameters():
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.slow
@pytest.mark.parametrize("library", LOOPS)
def test_the_manuals_loop_gives_the_weights_of_the_training_step(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = LOOPS[library]
    monkeypatch.chdir(tmp_path)
    recommended = recommendation_with({"precondition_frequency": 2})
    training = {**recommended.training, "gradient_clip_norm": None}
    python = written(recommended.model_copy(update={"training": training}), Format.PYTHON).text
    assert python is not None
    example = {"x": torch.linspace(-1, 1, 6), "labels": torch.tensor(2)}
    data = [example] * NUM_EXAMPLES  # all alike, as the loops put them into orders of their own
    start = Model()

    expected: dict[str, Any] = {"model": copy.deepcopy(start)}
    exec(compile(python, "pasted", "exec"), expected)
    batch = next(iter(DataLoader(data, batch_size=8)))  # type: ignore[arg-type] # a list is a dataset
    for _ in range(expected["NUM_STEPS"]):
        expected["training_step"](expected["model"](**batch)["loss"])

    found: dict[str, Any] = {
        "torch": torch,
        "model": copy.deepcopy(start),
        "data": data,
        "loader": DataLoader(data, batch_size=8),  # type: ignore[arg-type]
    }
    trained = found["model"]
    exec(compile(python, "pasted", "exec"), found)
    (loop,) = (block for block in blocks("service/README.md", "python") if marked in block)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' own
        exec(compile(loop, "manual", "exec"), found)
    for name, parameter in expected["model"].named_parameters():
        assert torch.equal(parameter, trained.get_parameter(name).cpu()), name
