from __future__ import annotations

from itertools import islice
from typing import Any

import pytest
import torch
from torch import nn

from trainers.config import InvalidConfig
from trainers.workload.batches import train_batches
from trainers.workloads.digits.digits import DigitsMLP, digits
from trainers.workloads.registry import load


def digits_mlp(**options: Any) -> DigitsMLP:
    return DigitsMLP(**{"hidden_sizes": [16], "dropout": 0.0, "label_smoothing": 0.0, **options})


def test_the_split_is_stratified_and_loses_no_image() -> None:
    data = digits()
    assert data.train_images.shape == (1437, 64)
    assert data.validation_images.shape == (360, 64)
    assert data.train_images.dtype == torch.float32
    shares = torch.bincount(data.validation_labels, minlength=10) / torch.bincount(data.train_labels, minlength=10)
    assert ((shares - 360 / 1437).abs() < 0.02).all()


def test_pixels_are_standardised_on_the_training_images() -> None:
    images = digits().train_images
    deviations = images.std(dim=0, correction=0)
    assert images.mean(dim=0).abs().max() < 1e-5
    assert (((deviations - 1).abs() < 1e-4) | (deviations == 0)).all()


def test_pixels_are_the_share_of_ink_of_the_same_images() -> None:
    data = digits()
    for pixels, images in (
        (data.train_pixels, data.train_images),
        (data.validation_pixels, data.validation_images),
    ):
        assert pixels.dtype == torch.float32
        assert pixels.shape == images.shape
        assert (pixels * 16).unique().tolist() == list(range(17))
        # Each pixel of both is a line in the other: the same order of images and of pixels.
        for place in (10, 35, 60):
            assert torch.corrcoef(torch.stack((pixels[:, place], images[:, place])))[0, 1] > 0.999


def test_the_data_are_loaded_once_per_process() -> None:
    assert digits() is digits()


def test_the_model_has_the_layers_asked_for() -> None:
    model = digits_mlp(hidden_sizes=[30, 20], dropout=0.5).build_model()
    assert {name: tuple(parameter.shape) for name, parameter in model.named_parameters()} == {
        "hidden0.weight": (30, 64),
        "hidden0.bias": (30,),
        "hidden1.weight": (20, 30),
        "hidden1.bias": (20,),
        "output.weight": (10, 20),
        "output.bias": (10,),
    }
    assert [module.p for module in model.modules() if isinstance(module, nn.Dropout)] == [0.5, 0.5]


def test_two_ranks_see_one_global_batch() -> None:
    workload = digits_mlp()
    arguments: dict[str, int] = {"batch_size": 32, "seed": 1, "start_step": 3}
    whole = train_batches(workload, **arguments, rank=0, world_size=1)
    halves = [train_batches(workload, **arguments, rank=rank, world_size=2) for rank in range(2)]
    for (images, labels), *shares in islice(zip(whole, *halves, strict=True), 60):
        assert torch.equal(images, torch.cat([share[0] for share in shares]))
        assert torch.equal(labels, torch.cat([share[1] for share in shares]))


@pytest.mark.parametrize("world_size", [2, 7])
def test_ranks_share_the_evaluation(world_size: int) -> None:
    workload = digits_mlp()
    torch.manual_seed(0)
    model = workload.build_model().eval()
    with torch.no_grad():
        whole = workload.evaluate(model, rank=0, world_size=1, device="cpu")
        shares = [workload.evaluate(model, rank=r, world_size=world_size, device="cpu") for r in range(world_size)]
    assert whole["validation_loss"][1] == 360
    for name, (total, weight) in whole.items():
        assert sum(share[name][0] for share in shares) == pytest.approx(total, rel=1e-6)
        assert sum(share[name][1] for share in shares) == weight


def test_label_smoothing_changes_the_training_loss_alone() -> None:
    plain, smoothed = digits_mlp(), digits_mlp(label_smoothing=0.2)
    model = plain.build_model().eval()
    batch = next(train_batches(plain, batch_size=32, seed=0, rank=0, world_size=1, start_step=0))
    with torch.no_grad():
        assert plain.loss(model, batch) != smoothed.loss(model, batch)
        assert plain.evaluate(model, rank=0, world_size=1, device="cpu") == smoothed.evaluate(
            model, rank=0, world_size=1, device="cpu"
        )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hidden_sizes", [0]),
        ("hidden_sizes", 64),
        ("hidden_sizes", [1.5]),
        ("dropout", 1.0),
        ("label_smoothing", -0.1),
        ("label_smoothing", "much"),
    ],
)
def test_an_impossible_option_is_named(option: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=rf"workload_options.({option}.*): \1 must be .*, got "):
        load("digits-mlp", {option: value})
