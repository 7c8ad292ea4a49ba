"""The weights of trained models as files, of sharded ones too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils import parametrizations

from tests.support.trainers.parallel.models import build
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trained_weights import loss_of, train_and_put
from tests.support.trainers.trials import assert_same_bits
from trainers.storage import WEIGHTS_FILE
from trainers.weights import check_weights_file, put_weights, whole_weights, write_weights


@pytest.mark.parametrize(
    ("mode", "model", "averages"),
    [
        ("fsdp2", "gpt", True),  # whose embedding is its output layer
        ("fsdp2", "uneven", False),
        ("simple_fsdp", "scalar", False),
    ],
)
def test_a_new_model_with_the_weights_of_ranks_has_their_loss(
    two_ranks: WarmRanks, tmp_path: Path, mode: str, model: str, averages: bool
) -> None:
    (loss, weights), (_, of_the_other) = two_ranks.run(train_and_put, model, mode, tmp_path, averages)
    written = load_file(tmp_path / WEIGHTS_FILE)
    assert_same_bits(written, weights)
    assert of_the_other == {}
    new = build(model)
    before = loss_of(new)
    new.load_state_dict(written)
    assert loss_of(new) == pytest.approx(loss, rel=1e-6)
    assert loss != pytest.approx(before, rel=1e-5)


def test_a_file_that_cannot_be_written_is_an_error_of_the_system_and_leaves_nothing(tmp_path: Path) -> None:
    weights = {"weight": torch.ones(3)}
    with pytest.raises(OSError, match="No such file or directory"):
        write_weights(tmp_path / "missing" / "w", weights, metadata={})
    (tmp_path / "directory").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_weights(tmp_path / "directory", weights, metadata={})
    check_weights_file(tmp_path / "w")
    assert [file.name for file in tmp_path.iterdir()] == ["directory"]
    write_weights(tmp_path / "w", weights, metadata={})
    check_weights_file(tmp_path / "w")
    assert_same_bits(load_file(tmp_path / "w"), weights)


def test_names_are_those_of_the_model_whatever_they_are(tmp_path: Path) -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), parametrizations.orthogonal(nn.Linear(4, 4)))
    model.add_module("original", nn.BatchNorm1d(4))
    put_weights(tmp_path, whole_weights(model), metadata={})
    written = load_file(tmp_path / WEIGHTS_FILE)
    assert written["original.num_batches_tracked"].dtype is torch.int64
    assert_same_bits(written, dict(model.state_dict()))
    model.load_state_dict(written)
