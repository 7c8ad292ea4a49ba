from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from trainers.workload.batches import train_batches
from trainers.workloads.digits.autoencoder import DigitsAutoencoder, divergence
from trainers.workloads.digits.digits import digits


def test_the_model_narrows_to_a_linear_code_and_widens_again() -> None:
    model = DigitsAutoencoder(size="tiny").build_model()
    weights = {name: tuple(p.shape) for name, p in model.named_parameters() if name.endswith("weight")}
    assert weights == {
        "encoder0.weight": (128, 64),
        "encoder1.weight": (64, 128),
        "encoder2.weight": (32, 64),
        "code.weight": (8, 32),
        "decoder0.weight": (32, 8),
        "decoder1.weight": (64, 32),
        "decoder2.weight": (128, 64),
        "output.weight": (64, 128),
    }
    names = [name for name, _ in model.named_children()]
    assert names[names.index("code") + 1] == "decoder0"
    assert names[-1] == "output"


def test_batches_are_ink_in_the_unit_interval() -> None:
    workload = DigitsAutoencoder(size="tiny")
    batch = next(train_batches(workload, batch_size=32, seed=0, rank=1, world_size=2, start_step=0))
    assert batch.shape == (16, 64)
    assert batch.dtype == torch.float32
    assert batch.min() == 0
    assert batch.max() == 1


def test_the_divergence_is_that_of_bernoulli_variables() -> None:
    p = torch.rand(5, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    logits = torch.randn(5, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    q = logits.sigmoid()
    expected = (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).sum()
    assert divergence(logits, p).item() == pytest.approx(expected.item(), rel=1e-12)
    assert divergence(torch.logit(p), p).item() == pytest.approx(0, abs=1e-12)


def test_pixels_of_0_and_1_have_a_finite_divergence() -> None:
    pixels = torch.tensor([[0.0, 1.0]])
    assert divergence(torch.tensor([[-3.0, 3.0]]), pixels).item() == pytest.approx(2 * 0.048587, rel=1e-4)
    assert divergence(torch.tensor([[-200.0, 200.0]]), pixels).item() == 0


def test_the_gradient_is_the_cross_entropys() -> None:
    pixels = digits().train_pixels[:8]
    logits = torch.randn(8, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (gradient,) = torch.autograd.grad(divergence(logits, pixels), logits)
    cross_entropy = functional.binary_cross_entropy_with_logits(logits, pixels, reduction="sum")
    (expected,) = torch.autograd.grad(cross_entropy, logits)
    assert torch.equal(gradient, expected)


def test_the_squared_error_is_summed_over_an_images_pixels() -> None:
    # A model that knows nothing, at a half everywhere.
    def half(pixels: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(pixels)

    metrics = DigitsAutoencoder(size="tiny").evaluate(half, rank=0, world_size=1, device="cpu")  # type: ignore[arg-type]
    expected = (digits().validation_pixels.double() - 0.5).square().sum().item()
    squared_error, num_images = metrics["validation_squared_error"]
    assert squared_error == pytest.approx(expected, rel=1e-6)
    assert num_images == 360
