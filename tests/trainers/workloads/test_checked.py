"""The checker passes on the built-in workloads that read a user's data, and on those with other defaults.

Those that need no options are in `tests/trainers/workload_check/test_workload_check.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers import small_data
from tests.support.waiting import PATIENCE_SECONDS
from trainers.workload.user_workload import import_class
from trainers.workload_check.child import outcome_of
from trainers.workload_check.rules import RULES
from trainers.workload_check.subject import Subject
from trainers.workload_check.trial_rules import OTHER_HASH_SEED, digests
from trainers.workloads.describe import environment_of_children
from trainers.workloads.registry import BUILT_IN, describe

BATCH_SIZE = 6
"""The fewest that 1, 2 and 3 ranks can share."""
NUM_VALIDATION_EXAMPLES = 16
SIDE = {"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
SKIPPED = {
    "image-folder: vit-nano": {"tokens"},
    "image-folder: resnet20": {"tokens"},
    "text-lm: gpt": {"counts"},
    "text-lm: llama": {"counts"},
    "click-log": {"blocks", "tokens"},
    "huggingface: gpt2": {"counts"},
    "huggingface: vit": {"tokens", "counts"},
    "huggingface: bert": {"counts"},
}
"""The rules on what a workload need not have, and does not."""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, dict[str, Any]]]:
    """A workload's name and options by case."""
    root = tmp_path_factory.mktemp("data")
    # Reader processes would come and go with each of a hundred streams; test_loading has them.
    images = {**small_data.write_images(root), "num_workers": 0}
    text = {**small_data.write_text(root), "num_validation_sequences": NUM_VALIDATION_EXAMPLES}
    of_hugging_face = {"max_validation_examples": NUM_VALIDATION_EXAMPLES}
    return {
        "image-folder: vit-nano": ("image-folder", images),
        "image-folder: resnet20": ("image-folder", {**images, "architecture": "resnet20", "patch_size": None}),
        "text-lm: gpt": ("text-lm", text),
        "text-lm: llama": ("text-lm", {**text, "architecture": "llama"}),
        "click-log": ("click-log", small_data.write_clicks(root)),
        "huggingface: gpt2": ("huggingface", {**small_data.GPT2, **of_hugging_face}),
        "huggingface: vit": (
            "huggingface",
            {
                "task": "image-classification",
                "architecture": "vit",
                "config": {**SIDE, "image_size": 16, "patch_size": 4, "num_channels": 1},
                **of_hugging_face,
            },
        ),
        "huggingface: bert": (
            "huggingface",
            {
                "task": "sequence-classification",
                "architecture": "bert",
                "config": {**SIDE, "max_position_embeddings": 32},
                **of_hugging_face,
            },
        ),
    }


def subject(case: tuple[str, dict[str, Any]]) -> Subject:
    name, options = case
    return Subject(name, options, batch_size=BATCH_SIZE)


@pytest.mark.slow
@pytest.mark.parametrize("case", SKIPPED)
def test_a_built_in_workload_keeps_every_rule(cases: dict[str, tuple[str, dict[str, Any]]], case: str) -> None:
    checked = subject(cases[case])
    found = {rule.name: outcome_of(rule, checked) for rule in RULES if rule.name != "processes"}
    assert {rule for rule, one in found.items() if one.status == "skipped"} == SKIPPED[case]
    told = {rule: one.text for rule, one in found.items() if one.status not in ("ok", "skipped")}
    if case.startswith("image-folder"):  # its default suits more images than these tests make
        assert told.pop("construction").startswith("default_batch_size 256 exceeds the ")
    assert told == {}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_workload_with_parameter_groups_describes_them(name: str) -> None:
    description = describe(name)
    has_method = hasattr(import_class(description.implementation), "parameter_groups")
    # Which class of `huggingface` there is follows from the task; they have the method.
    assert bool(description.parameter_groups) == (has_method or name == "huggingface")


@pytest.mark.processes
def test_another_process_builds_the_same_models_and_batches(cases: dict[str, tuple[str, dict[str, Any]]]) -> None:
    """The rule `processes`, with one process for all of them: each start takes seconds."""
    program = (
        "import json, sys; from tests.trainers.workloads.test_checked import digests, subject; "
        "print(json.dumps({name: digests(subject(case)) for name, case in json.load(sys.stdin).items()}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(cases),
        env={**environment_of_children(), "PYTHONHASHSEED": OTHER_HASH_SEED},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert answer.returncode == 0, answer.stderr
    there = json.loads(answer.stdout.splitlines()[-1])
    assert there == {name: digests(subject(case)) for name, case in cases.items()}
