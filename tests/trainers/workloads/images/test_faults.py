"""Images that cannot be read and worker processes that die, in trials on a user's images."""

from __future__ import annotations

import os
import shutil
import signal
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.trainers.images.data import write_split_tree, write_tree
from tests.support.trainers.images.trials import NUM_TRAIN, NUM_VALIDATION, evaluation, folder, ran, stream, trial
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import run_trial, without_clock
from tests.support.trainers.worker_processes import worker_processes
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workloads.images.transforms import training_image
from trainers.workloads.images.unreadable import NUM_NAMED

pytestmark = pytest.mark.processes


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_split_tree(tmp_path_factory.mktemp("images"), num_train=NUM_TRAIN, num_validation=NUM_VALIDATION)


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Path:
    """To be damaged."""
    return shutil.copytree(tree, tmp_path / "copy")


def break_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def test_a_killed_worker_changes_nothing_but_the_count(tree: Path) -> None:
    config = trial(tree, workload={"num_workers": 2}, num_steps=16)
    undisturbed = without_clock(ran(config))
    measuring = train(config, single_process_context())
    found = [next(measuring)]
    for worker in worker_processes():
        os.kill(worker.pid, signal.SIGKILL)
    found += list(measuring)
    # A death is noticed when the next batch of that worker's is due.
    assert found[0].metrics["num_restarted_loaders"] == 0
    assert found[-1].metrics["num_restarted_loaders"] == 2
    for (step, epoch, metrics), expected in zip(without_clock(found), undisturbed, strict=True):
        assert (step, epoch, {**metrics, "num_restarted_loaders": 0}) == expected


def test_unreadable_images_are_replaced_by_the_next_and_counted(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    discs = copy / "train" / "disc"
    break_file(discs / "0003.png")
    break_file(discs / "0004.jpeg")
    (discs / "0039.png").write_bytes(b"")
    changes: dict[str, Any] = {"min_crop_area": 1, "horizontal_flip": False, "max_unreadable_share": 0.1}
    workload = folder(copy, **changes)
    seen = Counter(example for batch in islice(stream(workload, batch_size=20), 4) for example in batch)
    # Both of the pair are replaced by 0005, and the last disc by the first square, with that one's label.
    for index, times in (("disc/0005", 3), ("square/0000", 2)):
        label = 0 if index.startswith("disc") else 1
        path = next((copy / "train").glob(f"{index}.*"))
        assert seen[_whole_image(path), label] == times
    assert len(seen) == 2 * NUM_TRAIN - 3
    # Of the pair, the first one's replacement meets the second again.
    assert workload.counts() == {"num_unreadable_images": 4, "num_restarted_loaders": 0}
    messages = sorted(record.getMessage() for record in caplog.records)
    assert [message.partition(" (")[0] for message in messages] == [
        f"passed over an unreadable image: {discs / name}" for name in ("0003.png", "0004.jpeg", "0039.png")
    ]
    assert sorted(remark.partition(" (")[0] for remark in workload.remarks()) == [
        f"unreadable image {discs / name}" for name in ("0003.png", "0004.jpeg", "0039.png")
    ]
    again = folder(copy, num_workers=2, **changes)
    batches = list(islice(stream(again, batch_size=20), 4))
    assert Counter(example for batch in batches for example in batch) == seen
    assert again.counts() == workload.counts()
    assert list(islice(stream(again, batch_size=20, start_step=2, world_size=2), 2)) == batches[2:]


def _whole_image(path: Path) -> bytes:
    return training_image(
        path.read_bytes(), image_size=16, random=Random(0), min_crop_area=1, horizontal_flip=False
    ).tobytes()


def test_unreadable_validation_images_are_left_out_and_counted(copy: Path) -> None:
    whole = folder(copy)
    for index in (0, 7):
        break_file(next((copy / "validation" / "square").glob(f"{index:04}.*")))
    workload = folder(copy, max_unreadable_share=0.5)
    found = evaluation(workload)
    assert found["validation_loss"][1] == found["validation_accuracy"][1] == 2 * NUM_VALIDATION - 2
    assert workload.counts()["num_unreadable_images"] == 2
    assert evaluation(workload, world_size=3)["validation_loss"][1] == 2 * NUM_VALIDATION - 2
    assert whole.counts()["num_unreadable_images"] == 0


@pytest.mark.parametrize("num_workers", [0, 1])
def test_too_many_unreadable_images_end_the_trial(copy: Path, num_workers: int) -> None:
    for file in (copy / "train" / "disc").glob("*.png"):
        break_file(file)
    with pytest.raises(
        ValueError,
        match=r"1\d of \d+ images could not be read, more than max_unreadable_share 0.01: .*/disc/\d+\.png \(.*\.\.\.$",
    ):
        ran(trial(copy, workload={"num_workers": num_workers}, num_steps=100, evaluate_every=100))
    # Ten are tolerated whatever their share, and more at a share that is allowed.
    allowed = trial(copy, workload={"max_unreadable_share": 0.5})
    last = ran(allowed)[-1]
    assert last.metrics["num_unreadable_images"] > 10
    assert len(last.remarks) == NUM_NAMED
    assert all(remark.startswith(f"unreadable image {copy}/train/disc/") for remark in last.remarks)


def test_both_ranks_tell_what_either_could_not_read(two_ranks: WarmRanks, copy: Path) -> None:
    (copy / "test").mkdir()
    for index in (1, 4):  # an image of each rank's share of the evaluation
        break_file(next((copy / "validation" / "square").glob(f"{index:04}.*")))
    config = trial(copy, workload={"max_unreadable_share": 0.5}, num_steps=2, evaluate_every=1)
    by_rank = [[measured.remarks for measured in found] for found in two_ranks.run(run_trial, config)]
    assert by_rank[0] == by_rank[1]
    aside, *unreadable = by_rank[0][0]
    assert aside == f"of {copy} are not read: test/"
    assert sorted(Path(remark.split()[2]).name[:4] for remark in unreadable) == ["0001", "0004"]
    assert by_rank[0][1] == by_rank[0][0]


def test_ranks_tell_an_image_that_both_met_once(two_ranks: WarmRanks, copy: Path) -> None:
    only = copy / "train" / "disc" / "0000.jpeg"
    only.write_bytes(b"no image")
    # A batch of all images, over and over: each rank meets it sooner or later.
    config = trial(copy, workload={"max_unreadable_share": 0.5}, batch_size=80, num_steps=8, evaluate_every=8)
    by_rank = [found[-1].remarks for found in two_ranks.run(run_trial, config)]
    assert by_rank == [(f"unreadable image {only} (no image in one of the formats JPEG, PNG, WEBP)",)] * 2


def test_too_many_unreadable_validation_images_end_the_trial(copy: Path) -> None:
    for file in (copy / "validation" / "square").iterdir():
        break_file(file)
    with pytest.raises(ValueError, match=r"12 of 24 images could not be read, more than max_unreadable_share 0.01: "):
        evaluation(folder(copy))


def test_a_vanished_file_is_an_unreadable_image(copy: Path) -> None:
    workload = folder(copy)
    (copy / "train" / "disc" / "0000.jpeg").unlink()
    list(islice(stream(workload, batch_size=80), 1))
    assert workload.counts()["num_unreadable_images"] == 1


def test_nothing_readable_at_all_is_said_at_once(tmp_path: Path) -> None:
    write_tree(tmp_path, num_per_class=20)
    for file in tmp_path.glob("*/*"):
        break_file(file)
    with pytest.raises(ValueError, match=r"none can be read; the last ones are .*\.(png|jpeg) \("):
        next(stream(folder(tmp_path)))
