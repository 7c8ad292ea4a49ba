"""Activation checkpointing changes neither gradients nor what batch normalisation remembers."""

from __future__ import annotations

import copy

import torch
from torch import nn

from trainers.parallel.recomputation import recompute_in_backward


def test_running_statistics_count_a_batch_once() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    plain = nn.Sequential(block, nn.Flatten(), nn.Linear(4 * 36, 2))
    recomputed = copy.deepcopy(plain)
    recompute_in_backward([recomputed[0]])
    images = torch.randn(5, 3, 8, 8)
    for model in (plain, recomputed):
        for _ in range(3):
            model(images).square().sum().backward()
    for (name, one), (_, other) in zip(plain.state_dict().items(), recomputed.state_dict().items(), strict=True):
        assert torch.equal(one, other), name
    for one, other in zip(plain.parameters(), recomputed.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    plain.eval()
    recomputed.eval()
    assert torch.equal(plain(images), recomputed(images))
