"""The words that options of built-in workloads take, as descriptions have them and as the classes do."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import pytest

from trainers.workload.user_workload import options_of
from trainers.workloads.clicks import click_log
from trainers.workloads.digits.autoencoder import ENCODER_SIZES
from trainers.workloads.digits.convnet import CHANNELS
from trainers.workloads.huggingface.architecture import Task, Weights
from trainers.workloads.images.resnet import RESNETS
from trainers.workloads.images.vision_transformer import VISION_TRANSFORMERS
from trainers.workloads.language import stdlib_gpt, text_lm
from trainers.workloads.registry import BUILT_IN

CHOICES = {
    ("click-log", "size"): {*click_log.SHAPES},
    ("digits-autoencoder", "size"): {*ENCODER_SIZES},
    ("digits-convnet", "size"): {*CHANNELS},
    ("huggingface", "task"): {*get_args(Task)},
    ("huggingface", "weights"): {*get_args(Weights)},
    ("image-folder", "architecture"): {*RESNETS, *VISION_TRANSFORMERS},
    ("stdlib-gpt", "size"): {*stdlib_gpt.SHAPES},
    ("text-lm", "architecture"): {*text_lm.ARCHITECTURES},
    ("text-lm", "size"): {size for shapes in text_lm.SHAPES.values() for size in shapes},
}


@pytest.mark.parametrize("workload", sorted(BUILT_IN))
def test_described_choices_are_those_of_the_class(workload: str) -> None:
    described = {(workload, name): {*option.choices} for name, option in BUILT_IN[workload].options.items()}
    assert {key: found for key, found in described.items() if found} == {
        key: choices for key, choices in CHOICES.items() if key[0] == workload
    }
    for name, option in BUILT_IN[workload].options.items():
        assert not option.choices or option.default in option.choices, name


def test_a_users_own_literal_is_a_choice() -> None:
    class Own:
        def __init__(
            self,
            size: Annotated[Literal["s", "l"], "how large"] = "s",
            kind: Literal["a", "b"] = "a",
            number: Literal[1, 2] = 1,
            name: str = "x",
        ) -> None: ...

    choices = {name: option.choices for name, option in options_of(Own).items()}
    assert choices == {"size": ("s", "l"), "kind": ("a", "b"), "number": (), "name": ()}
