from __future__ import annotations

from typing import Any

import pytest
import torch

from trainers.config import InvalidConfig
from trainers.workload.batches import train_batches
from trainers.workloads.digits.convnet import DigitsConvnet
from trainers.workloads.digits.digits import digits
from trainers.workloads.registry import load


def test_the_parameters_are_kernels_and_norms() -> None:
    model = DigitsConvnet(size="tiny", label_smoothing=0.0).build_model()
    assert {name: tuple(parameter.shape) for name, parameter in model.named_parameters()} == {
        "convolution0.weight": (16, 1, 3, 3),
        "norm0.weight": (16,),
        "norm0.bias": (16,),
        "convolution1.weight": (32, 16, 3, 3),
        "norm1.weight": (32,),
        "norm1.bias": (32,),
        "convolution2.weight": (64, 32, 3, 3),
        "norm2.weight": (64,),
        "norm2.bias": (64,),
        "output.weight": (10, 64),
        "output.bias": (10,),
    }


def test_an_images_logits_depend_on_no_other_image_of_the_batch() -> None:
    workload = DigitsConvnet(size="tiny", label_smoothing=0.0)
    torch.manual_seed(0)
    model = workload.build_model().train()
    images, _ = next(train_batches(workload, batch_size=32, seed=0, rank=0, world_size=1, start_step=0))
    # Not bit for bit: kernels add up in another order for another batch size.
    torch.testing.assert_close(model(images)[:4], model(images[:4]), rtol=1e-4, atol=1e-5)
    assert not list(model.buffers())


def test_batches_are_images_standardised_as_a_whole() -> None:
    workload = DigitsConvnet(size="tiny", label_smoothing=0.0)
    batches = train_batches(workload, batch_size=1437, seed=0, rank=0, world_size=1, start_step=0)
    images, labels = next(batches)
    assert (images.shape, images.dtype) == ((1437, 64), torch.float32)
    assert (labels.shape, labels.dtype) == ((1437,), torch.int64)
    assert images.mean().item() == pytest.approx(0, abs=1e-5)
    assert images.std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert images.unique().numel() == 17  # one scale for all pixels keeps the 17 greys


def test_images_keep_their_labels() -> None:
    workload = DigitsConvnet(size="tiny", label_smoothing=0.0)
    images, labels = next(train_batches(workload, batch_size=64, seed=5, rank=0, world_size=1, start_step=0))
    pixels = digits().train_pixels
    greys = (images - images.min()) / (images.max() - images.min())
    for image, label in zip(greys, labels, strict=True):
        nearest = (pixels - image).square().sum(dim=1).argmin()
        assert digits().train_labels[nearest] == label


@pytest.mark.parametrize("value", [1.0, -0.1, "much", True, None])
def test_an_impossible_label_smoothing_is_named(value: Any) -> None:
    with pytest.raises(
        InvalidConfig, match=r"workload_options.label_smoothing: label_smoothing must be a number in \[0, 1\), got "
    ):
        load("digits-convnet", {"label_smoothing": value})
