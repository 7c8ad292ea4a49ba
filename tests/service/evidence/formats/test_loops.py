"""Pasted configs in the training loops of others: the manual's code gives the weights that `training_step` gives."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import checkpoint
from torch.utils.data import DataLoader

from service.evidence.formats.written import Format, written
from tests.support.readmes import blocks
from tests.support.service.confirmed import recommendation_with

NUM_EXAMPLES, NUM_STEPS = 96, 12
LOOPS = {
    "transformers": "import Trainer",
    "accelerate": "import Accelerator",
    "lightning": "import pytorch_lightning",
}
"""A line that tells the manual's block of a library from others."""


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


@pytest.fixture
def python() -> str:
    """The pasted Python of a config that clips no gradients, as each library does that in its own way."""
    recommended = recommendation_with({"precondition_frequency": 2})
    training = {**recommended.training, "gradient_clip_norm": None}
    text = written(recommended.model_copy(update={"training": training}), Format.PYTHON).text
    assert text is not None
    return text


@pytest.fixture
def data() -> list[dict[str, Tensor]]:
    """Examples that are all alike, as the loops put them into orders of their own."""
    return [{"x": torch.linspace(-1, 1, 6), "labels": torch.tensor(2)}] * NUM_EXAMPLES


def batches(data: list[dict[str, Tensor]]) -> DataLoader[dict[str, Tensor]]:
    return DataLoader(data, batch_size=8)  # type: ignore[arg-type] # a list is a dataset


def as_pasted(python: str, data: list[dict[str, Tensor]]) -> nn.Module:
    """A model that the pasted code has trained with its `training_step`."""
    expected: dict[str, Any] = {"model": Model()}
    exec(compile(python, "pasted", "exec"), expected)
    batch = next(iter(batches(data)))
    for _ in range(expected["NUM_STEPS"]):
        expected["training_step"](expected["model"](**batch)["loss"])
    model: nn.Module = expected["model"]
    return model


def block_with(marked: str) -> str:
    """The manual's only block of Python with these words."""
    (block,) = (block for block in blocks("service/LOOPS.md", "python") if marked in block)
    return block


def assert_same_weights(found: nn.Module, expected: nn.Module) -> None:
    for name, parameter in expected.named_parameters():
        assert torch.equal(parameter, found.get_parameter(name).cpu()), name


@pytest.mark.slow
@pytest.mark.parametrize("library", LOOPS)
def test_the_manuals_loop_gives_the_weights_of_the_training_step(
    library: str, python: str, data: list[dict[str, Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained = Model()
    found: dict[str, Any] = {"torch": torch, "model": trained, "data": data, "loader": batches(data)}
    exec(compile(python, "pasted", "exec"), found)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries' own
        exec(compile(block_with(LOOPS[library]), "manual", "exec"), found)
    assert_same_weights(trained, as_pasted(python, data))


@pytest.mark.slow
def test_torchtitans_containers_give_the_weights_of_the_training_step_with_a_checkpoint_in_the_middle(
    python: str, data: list[dict[str, Tensor]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 0.3.0 runs with torch 2.13. What it requires would take huggingface_hub back from 2.4 to 1.33 and bring wandb, so
    # tests/run installs it without that, and the extra `test` does not bring it.
    pytest.importorskip("torchtitan", reason="tests/run installs it")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tuned.py").write_text(python)
    config = SimpleNamespace(training=SimpleNamespace())
    exec(compile(block_with("from torchtitan"), "manual", "exec"), {"config": config})

    def begin() -> dict[str, Any]:
        """The content of a checkpoint of torchtitan's, built as its `Trainer` builds it."""
        model = Model()
        optimizers = config.optimizer.build(model_parts=[model])
        schedulers = config.lr_scheduler.build(optimizers=optimizers, training_steps=NUM_STEPS)
        return {"model": model, "optimizer": optimizers, "lr_scheduler": schedulers}

    def train(states: dict[str, Any], num_steps: int) -> None:
        """Steps as `Trainer.train_step` takes them."""
        for _, batch in zip(range(num_steps), batches(data), strict=False):
            states["optimizer"].zero_grad(set_to_none=True)
            states["model"](**batch)["loss"].backward()
            nn.utils.clip_grad_norm_(states["model"].parameters(), config.training.max_norm, foreach=True)
            states["optimizer"].step()
            states["lr_scheduler"].step()

    states, resumed = begin(), begin()
    train(states, NUM_STEPS // 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's: there are no ranks, and torchtitan asks schedules their rate
        checkpoint.save(states, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
        checkpoint.load(resumed, checkpoint_id=tmp_path / "checkpoint", no_dist=True)
    train(resumed, NUM_STEPS - NUM_STEPS // 2)
    assert_same_weights(resumed["model"], as_pasted(python, data))
