"""Configs with a part of its own class, as that of a text model beside one of images."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainers.workloads.huggingface.test_huggingface import GPT2, NAME, VIT
from trainers.config import InvalidConfig
from trainers.workloads.registry import load


def test_fields_of_parts_of_a_config_are_checked() -> None:
    for field, told in (("hidden", ": CLIPVisionConfig has no such"), ("num_hidden_layers", " must be at most 1000")):
        with pytest.raises(InvalidConfig, match=f"config.vision_config.{field}{told}"):
            load(NAME, {**VIT, "architecture": "clip", "config": {"vision_config": {field: 1001}}})


@pytest.mark.parametrize(
    ("architecture", "part", "part_class"),
    [
        ("dbrx", {"attn_config": {"hidden": 8}}, "DbrxAttentionConfig"),
        ("fuyu", {"text_config": {"hidden": 8}}, "PersimmonConfig"),
        ("fuyu", {"text_config": {"hidden": 8, "model_type": "llama"}}, "LlamaConfig"),
    ],
)
def test_a_part_has_the_fields_of_the_class_that_the_library_gives_it(
    architecture: str, part: dict[str, Any], part_class: str
) -> None:
    with pytest.raises(InvalidConfig, match=rf"config\.\w+\.hidden: {part_class} has no such"):
        load(NAME, {**GPT2, "architecture": architecture, "config": part})
