"""The workload on a user's images: what every workload promises, and what happens to images and worker processes."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.trainers.images.data import table, write_arrow, write_parquet, write_split_tree
from tests.support.trainers.images.trials import (
    NUM_TRAIN,
    NUM_VALIDATION,
    Example,
    evaluation,
    folder,
    options,
    ran,
    stream,
    trial,
)
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import run_trial, without_clock
from tests.support.trainers.worker_processes import num_worker_processes, worker_processes
from trainers.config import InvalidConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.protocol import CountsEvents, HasBlocks, HasParameterGroups
from trainers.workloads.images import image_folder
from trainers.workloads.images.image_folder import standardised
from trainers.workloads.images.transforms import validation_image
from trainers.workloads.registry import describe, load

pytestmark = pytest.mark.processes


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split_tree(tmp_path_factory.mktemp("images"), num_train=NUM_TRAIN, num_validation=NUM_VALIDATION)


def test_batches_are_bytes_of_crops(tree: Path) -> None:
    workload = folder(tree)
    assert workload.num_train_examples == 2 * NUM_TRAIN
    batch = next(workload.train_batches(batch_size=8, seed=0, rank=1, world_size=2, start_step=3))
    images, labels = batch
    assert (images.shape, images.dtype) == ((4, 16, 16, 3), torch.uint8)
    assert (labels.shape, labels.dtype) == ((4,), torch.int64)
    # Reddish discs and bluish squares, on dark noise.
    brightest = images.float().amax(dim=(1, 2))
    assert ((brightest[:, 2] > brightest[:, 0]) == labels.bool()).sum() >= 3


@pytest.mark.parametrize("num_workers", [0, 2])
def test_ranks_see_parts_of_one_global_batch(tree: Path, num_workers: int) -> None:
    whole = list(islice(stream(folder(tree)), 15))
    workload = folder(tree, num_workers=num_workers)
    for world_size in (1, 2, 3):
        assert list(islice(stream(workload, world_size=world_size), 15)) == whole
    assert list(islice(stream(workload, seed=2), 15)) != whole


@pytest.mark.parametrize(("num_workers", "then"), [(0, 0), (3, 1), (0, 2)])
def test_batches_go_on_at_any_step(tree: Path, num_workers: int, then: int) -> None:
    whole = list(islice(stream(folder(tree, num_workers=num_workers)), 16))
    for start_step in (1, 7, 13):
        resumed = stream(folder(tree, num_workers=then), start_step=start_step)
        assert list(islice(resumed, 16 - start_step)) == whole[start_step:]


@pytest.mark.parametrize("kind", ["tree", "parquet", "arrow"])
def test_two_ranks_together_see_each_example_once_per_epoch(tree: Path, tmp_path: Path, kind: str) -> None:
    path = tree
    if kind == "parquet":
        path = write_parquet(tmp_path / "data.parquet", table(35, as_structures=True))
    if kind == "arrow":
        path = write_arrow(tmp_path / "data.arrow", table(35), as_stream=True)
    # Without cutting and mirroring, an image is the same whenever it is seen.
    workload = folder(path, min_crop_area=1, horizontal_flip=False)
    num_examples = workload.num_train_examples
    assert num_examples == (80 if kind == "tree" else 62)  # a tenth of 35, rounded to 4, is held out

    def epoch(seed: int, number: int) -> Counter[Example]:
        batches = stream(workload, seed=seed, world_size=2, batch_size=20)
        seen = [example for batch in islice(batches, math.ceil(3 * num_examples / 20)) for example in batch]
        return Counter(seen[number * num_examples : (number + 1) * num_examples])

    first = epoch(1, 0)
    assert len(first) == num_examples
    assert first == epoch(1, 1) == epoch(1, 2) == epoch(2, 0)


def test_crops_differ_between_epochs_and_seeds(tree: Path) -> None:
    workload = folder(tree)
    seen = [example for seed in (1, 2) for batch in islice(stream(workload, seed=seed), 14) for example in batch]
    assert len(set(seen)) == len(seen) == 2 * 14 * 12  # twice an epoch of 80, and half


@pytest.mark.parametrize("world_size", [2, 5, 40])
def test_ranks_share_the_evaluation(tree: Path, world_size: int) -> None:
    # With 40 ranks, some have no share.
    workload = folder(tree)
    whole, shared = evaluation(workload), evaluation(workload, world_size)
    assert whole["validation_loss"][1] == 2 * NUM_VALIDATION
    for metric, (total, weight) in whole.items():
        shared_total, shared_weight = shared[metric]
        assert shared_total == pytest.approx(total, rel=1e-5)  # float32 rounding, by batch size
        assert shared_weight == weight


def test_workers_change_nothing_of_the_evaluation(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folder, "NUM_IMAGES_AT_ONCE", 7)  # as if there were many
    assert evaluation(folder(tree, num_workers=2)) == evaluation(folder(tree))


def test_loss_and_evaluation_are_the_same_mean(tree: Path) -> None:
    path = tree / "validation"  # both splits are the same images then, as whole images
    workload = folder(path, validation_share=0.5, label_smoothing=0.0)
    total, weight = evaluation(workload)["validation_loss"]
    torch.manual_seed(0)
    model = workload.build_model().eval()
    nn.init.normal_(model.get_submodule("head").get_parameter("weight"))
    images = workload.images.validation
    pixels = torch.stack(
        [torch.from_numpy(validation_image(images.encoded(index), image_size=16)) for index in range(len(images))]
    )
    with torch.no_grad():
        loss = workload.loss(model, (pixels, torch.from_numpy(images.labels)))
    assert total / weight == pytest.approx(loss.item(), rel=1e-5)


def test_label_smoothing_is_in_the_training_loss_alone(tree: Path) -> None:
    smooth, sharp = folder(tree, label_smoothing=0.2), folder(tree, label_smoothing=0.0)
    torch.manual_seed(0)
    model = smooth.build_model()
    nn.init.normal_(model.get_submodule("head").get_parameter("weight"))
    batch = next(smooth.train_batches(batch_size=8, seed=0, rank=0, world_size=1, start_step=0))
    images, labels = batch
    log_probabilities = model(standardised(images)).log_softmax(dim=1)
    targets = torch.full((8, 2), 0.1).scatter(1, labels[:, None], 0.9)  # 0.2 shared by two classes
    expected = -(targets * log_probabilities).sum(dim=1).mean()
    torch.testing.assert_close(smooth.loss(model, batch), expected)
    assert sharp.loss(model, batch) != smooth.loss(model, batch)
    assert evaluation(sharp) == evaluation(smooth)


def test_pixels_are_standardised_by_channel() -> None:
    images = torch.zeros(2, 4, 6, 3, dtype=torch.uint8)
    images[..., 0], images[..., 1], images[..., 2] = 124, 116, 104
    found = standardised(images)
    assert (found.shape, found.dtype, found.is_contiguous()) == ((2, 3, 4, 6), torch.float32, True)
    assert found.abs().max() < 0.01  # ImageNet's mean, rounded
    torch.testing.assert_close(
        standardised(images + 51) - found, 0.2 / torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1).expand(2, 3, 4, 6)
    )


@pytest.mark.parametrize(("architecture", "num_blocks"), [("resnet18", 8), ("resnet50", 16), ("vit-tiny", 12)])
def test_blocks_and_groups_hold_the_model(tree: Path, architecture: str, num_blocks: int) -> None:
    workload = folder(tree, architecture=architecture, patch_size=None, image_size=32)
    assert isinstance(workload, HasBlocks)
    assert isinstance(workload, HasParameterGroups)
    assert isinstance(workload, CountsEvents)
    model = workload.build_model()
    assert len(workload.blocks(model)) == num_blocks
    assert {type(block) for block in workload.blocks(model)} == {type(workload.blocks(model)[0])}
    decayed, undecayed = workload.parameter_groups(model)
    assert undecayed["weight_decay"] == 0.0
    assert "weight_decay" not in decayed
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert len(decayed["params"]) + len(undecayed["params"]) == len(names)
    for parameter in decayed["params"]:
        assert isinstance(_owner(model, names[id(parameter)]), nn.Conv2d | nn.Linear)
        assert names[id(parameter)].endswith("weight")
    for parameter in undecayed["params"]:
        name = names[id(parameter)]
        is_norm = isinstance(_owner(model, name), nn.BatchNorm2d | nn.LayerNorm)
        assert is_norm or name.endswith("bias") or name in ("cls_token", "pos_embed"), name


def _owner(model: nn.Module, name: str) -> nn.Module:
    return model.get_submodule(name.rpartition(".")[0])


@pytest.mark.parametrize(
    ("architecture", "patch_size", "bound"),
    # Measured after 40 steps: 0.03 and 0.1; without training it is 0.69 or more.
    [("vit-nano", 8, 0.3), ("resnet20", None, 0.45)],
)
def test_adamw_learns_to_tell_discs_from_squares(
    tree: Path, architecture: str, patch_size: int | None, bound: float
) -> None:
    config = trial(
        tree,
        workload={"architecture": architecture, "patch_size": patch_size, "min_crop_area": 0.5},
        num_steps=40,
        evaluate_every=20,
        batch_size=32,
    )
    found = ran(config)
    assert all(measurement.metrics.keys() >= describe("image-folder").metrics.keys() for measurement in found)
    assert found[-1].metrics["validation_loss"] < bound
    assert found[-1].metrics["validation_accuracy"] > 0.9
    assert found[-1].metrics["num_unreadable_images"] == found[-1].metrics["num_restarted_loaders"] == 0


@pytest.mark.parametrize("architecture", ["vit-nano", "resnet20"])
def test_resume_is_bit_identical_whatever_the_number_of_workers(tree: Path, tmp_path: Path, architecture: str) -> None:
    patch_size = 8 if architecture.startswith("vit") else None
    config = trial(tree, workload={"architecture": architecture, "patch_size": patch_size, "num_workers": 1})
    whole = ran(config, tmp_path / "whole")
    without_workers = dataclasses.replace(config, workload_options={**config.workload_options, "num_workers": 0})
    assert without_clock(ran(without_workers)) == without_clock(whole)
    context = single_process_context(checkpoint_directory=tmp_path / "stopped")
    first = train(config, context)
    stopped = list(islice(first, 2))
    first.close()
    assert worker_processes() == []
    torch.manual_seed(999)
    resumed = ran(config, tmp_path / "stopped")
    assert without_clock(stopped + resumed[1:]) == without_clock(whole)


def test_one_rank_equals_two(two_ranks: WarmRanks, tree: Path) -> None:
    # Without batch normalisation, ranks share one gradient.
    config = trial(tree, workload={"num_workers": 1})
    alone = ran(config)
    by_rank = two_ranks.run(run_trial, config)
    for one, two in zip(alone, by_rank[0], strict=True):
        for metric in ("train_loss", "validation_loss", "validation_accuracy"):
            assert two.metrics[metric] == pytest.approx(one.metrics[metric], rel=1e-3)  # the same sums in another order


def test_two_ranks_with_batch_normalisation_agree_on_what_they_measure(two_ranks: WarmRanks, tree: Path) -> None:
    by_rank = two_ranks.run(run_trial, trial(tree, workload={"architecture": "resnet20", "patch_size": None}))
    assert without_clock(by_rank[0]) == without_clock(by_rank[1])


def test_many_trials_in_one_process_leave_no_process_behind(two_ranks: WarmRanks, tree: Path) -> None:
    config = trial(tree, workload={"num_workers": 2}, num_steps=2, evaluate_every=1)
    for _ in range(3):
        assert [len(found) for found in two_ranks.run(run_trial, config, None, 1)] == [1, 1]
    assert two_ranks.run(num_worker_processes) == [0, 0]


def test_two_ranks_measure_together(two_ranks: WarmRanks, tree: Path) -> None:
    config = trial(tree, workload={"num_workers": 1}, num_steps=4, evaluate_every=2)
    for found in two_ranks.run(run_trial, config):
        assert [one.step for one in found] == [2, 4]
        assert found[-1].metrics["num_unreadable_images"] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"path": "/nothing/there"}, "path '/nothing/there' does not exist"),
        ({"path": 3}, "path must be a string"),
        ({"architecture": "alexnet"}, "architecture must be one of resnet18, resnet50, resnet20, vit-nano, "),
        ({"architecture": "resnet18"}, "patch_size has no effect with resnet18, got 8"),
        ({"image_size": 4}, "image_size must be an integer >= 8, got 4"),
        ({"patch_size": 5}, "patch_size 5 must divide image_size 16"),
        ({"patch_size": None, "image_size": 40}, "patch_size 16 must divide image_size 40"),
        ({"validation_share": 1.0}, r"validation_share must be a number in \(0, 1\), got 1.0"),
        ({"validation_share": 0.5}, "validation_share has no effect where "),
        ({"label_smoothing": 1}, r"label_smoothing must be a number in \[0, 1\), got 1"),
        ({"min_crop_area": 0}, r"min_crop_area must be a number in \(0, 1\], got 0"),
        ({"horizontal_flip": 1}, "horizontal_flip must be true or false, got 1"),
        ({"num_workers": -1}, "num_workers must be an integer >= 0, got -1"),
        ({"max_unreadable_share": -0.5}, r"max_unreadable_share must be a number in \[0, 1\), got -0.5"),
        ({"image_column": ""}, "image_column must be a string"),
    ],
)
def test_impossible_options_are_refused(tree: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        load("image-folder", {**options(tree), **changes})


def test_classes_of_the_validation_alone_are_named(tmp_path: Path) -> None:
    write_split_tree(tmp_path, num_train=2, num_validation=1)
    (tmp_path / "validation" / "unheard-of").mkdir()
    told = f"{tmp_path}/validation has classes that {tmp_path}/train has not: unheard-of"
    with pytest.raises(InvalidConfig, match=told):
        load("image-folder", options(tmp_path))


def test_the_path_is_required() -> None:
    with pytest.raises(InvalidConfig, match="path"):
        load("image-folder", {})


def test_a_missing_library_is_named_with_its_extra(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(InvalidConfig, match=r"image-folder needs PIL.*pip install 'shampoo-tuner\[vision\]'"):
        folder(tree)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_are_pinned_where_cuda_is_in_use(tree: Path) -> None:
    torch.zeros((), device="cuda")
    for num_workers in (0, 1):
        batches = folder(tree, num_workers=num_workers).train_batches(
            batch_size=4, seed=0, rank=0, world_size=1, start_step=0
        )
        assert all(part.is_pinned() for part in next(batches))
        batches.close()
