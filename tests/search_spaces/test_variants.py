"""Every option of the family has a row in `convergence`: a preset searches it, or a variant changes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from search_spaces import preset
from shampoo import Shampoo
from shampoo.hyperparameters import DEFAULTS
from tests.benchmarks.training.tuning import OPTIMIZERS, VARIANTS, recipe

FAMILY = tuple(name for name in OPTIMIZERS if preset(name).optimizer == "shampoo")

WITHOUT_A_ROW = {
    # These share the work, and other tests hold the steps to those of one process.
    "distributed",
    "num_ranks_per_group",
    "reduce_gradients",
    "communication_dtype",
    # No workload that ships trains weights below float32, and none has a refresh that fails.
    "low_precision_weights",
    "max_failed_refreshes",
    # A scale alone, which the search of the learning rate takes up where all matrices are alike.
    "adjust_lr_fn",
}


def test_every_option_is_searched_or_changed() -> None:
    searched = {
        name.split("[")[0]
        for one in FAMILY
        for name in (*(parameter.name for parameter in preset(one).parameters), *preset(one).fixed)
    }
    changed = {name for variant in VARIANTS.values() for name in variant.arguments}
    assert set(DEFAULTS) - searched - changed == WITHOUT_A_ROW


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_is_taken_by_each_of_its_optimizers(name: str) -> None:
    variant = VARIANTS[name]
    for origin in variant.of:
        if origin in FAMILY:
            (parameters, *_) = preset(origin).branch_defaults()
            arguments = {**recipe(preset(origin), parameters).optimizer.arguments, **variant.arguments}
            given: dict[str, Any] = {key: tuple(x) if isinstance(x, list) else x for key, x in arguments.items()}
            weight = torch.nn.Parameter(torch.ones(4, 3))
            weight.grad = torch.ones(4, 3)
            Shampoo([weight], **given).step()
            assert weight.isfinite().all()
