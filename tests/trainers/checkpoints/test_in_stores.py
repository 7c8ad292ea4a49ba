"""Checkpoints in a store: the same as on a path, complete with their manifest and not before."""

from __future__ import annotations

import json
import logging
import signal
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from pyarrow import fs

from tests.support.s3_server import SECRET, S3Server, in_a_store
from tests.support.trainers import checkpoint_states
from tests.support.trainers.checkpoint_states import checkpoints, config, newest_step, save, small_state
from tests.support.trainers.ranks import WarmRanks, rank_context
from tests.support.trainers.trials import assert_same_bits, final_state, small_trial, without_clock
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from trainers.checkpoints import CheckpointMissing, CheckpointNotStored, StoreFailed, fork_checkpoint
from trainers.config import TrialConfig
from trainers.loop import train
from trainers.ranks.context import join_process_group, process_group_context, single_process_context
from trainers.storage import Place, StoreUri, place_of
from trainers.storage import object_store as stores
from trainers.storage.object_store import ObjectStore


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Server) -> StoreUri:
    """An empty one in a store."""
    directory = tmp_path / "in a store"
    return in_a_store(directory.as_uri() if request.param == "file" else s3.uri(f"{tmp_path.name}/a%20b"))


def files(place: StoreUri) -> dict[str, int]:
    """Bytes by path, where the token of a checkpoint is left out."""
    return {f"{path[:13]}/{path.partition('/')[2]}": size for path, size in ObjectStore(place).files().items()}


def steps(place: StoreUri) -> list[int]:
    """The steps of all complete checkpoints."""
    return sorted(int(path[5:13]) for path in files(place) if path.endswith("manifest.json"))


def run(config: TrialConfig, place: Place | None, limit: int | None = None) -> Any:
    return without_clock(list(islice(train(config, single_process_context(checkpoint_directory=place)), limit)))


def final_state_in(place: StoreUri, step: int) -> dict[str, Any]:
    store = ObjectStore(place)
    [path] = [path for path in store.files() if path.startswith(f"step-{step:08d}") and path.endswith("manifest.json")]
    manifest = json.loads(store.read(path))["manifest"]
    return {"structure": manifest["structure"], "files": manifest["files"]}


def test_a_trial_goes_on_from_a_store_bit_for_bit_as_from_a_path(place: StoreUri, tmp_path: Path) -> None:
    config = small_trial("shampoo")
    whole = run(config, tmp_path / "path")
    stopped = run(config, place, limit=2)
    assert steps(place) == [10, 20]
    assert stopped + run(config, place)[1:] == whole
    assert steps(place) == [30, 40]
    assert_same_bits(final_state_in(place, 40), final_state(tmp_path / "path", config))


def test_a_state_of_two_ranks_in_a_store_loads_on_one_and_three_and_back(
    s3: S3Server, tmp_path: Path, two_ranks: WarmRanks, three_ranks: WarmRanks
) -> None:
    place = in_a_store(s3.uri(tmp_path.name))
    saved = two_ranks.run(checkpoint_states.train_and_save, place, "shampoo_blocks", "fsdp2", 2)[0]
    assert sum(path.endswith(".safetensors") for path in files(place)) == 2
    loaded = [
        checkpoint_states.load_and_gather(place, "shampoo_blocks", "ddp", 1),
        *two_ranks.run(checkpoint_states.load_and_gather, place, "shampoo_blocks", "fsdp2", 2),
        *three_ranks.run(checkpoint_states.load_and_gather, place, "shampoo_blocks", "fsdp2", 3),
    ]
    for state, _, world_size in loaded:
        assert_same_bits(state, saved)
        assert world_size == 2


def test_the_newest_are_kept_and_all_else_goes(place: StoreUri) -> None:
    store = ObjectStore(place)
    to = checkpoints(place)
    for step in (10, 20, 30):
        save(to, step)
    store.write("step-00000035-0123456789abcdef/rank-00000.safetensors", lambda: [b"left by a crash"])
    store.write("notes", lambda: [b"not ours"])
    [damaged] = [path for path in store.files() if path.startswith("step-00000030") and path.endswith("safetensors")]
    store.write(damaged, lambda: [b"damaged"])

    again = checkpoints(place)
    restored = again.load(small_state(1))
    assert restored is not None
    assert restored.measurement.step == 20
    [skipped] = restored.skipped
    assert skipped.startswith("step-00000030-")
    assert skipped.endswith("rank-00000.safetensors does not have the checksum in manifest.json")
    save(again, 30)
    assert steps(place) == [20, 30]
    assert len(store.files()) == 5
    assert newest_step(place) == 30


def test_one_that_was_killed_before_its_manifest_is_never_taken(s3: S3Server, tmp_path: Path) -> None:
    place, world_size = in_a_store(s3.uri(tmp_path.name)), 2
    s3.hold(r"PUT .*/step-00000020-\w+/manifest")
    arguments = [(place, rank, world_size, tmp_path / "meeting_point") for rank in range(world_size)]
    ranks = [rank_context().Process(target=save_twice, args=of_rank) for of_rank in arguments]
    for rank in ranks:
        rank.start()
    try:
        wait_until(s3.num_failed, "the manifest to be sent")
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
    s3.heal()
    assert sum(path.startswith("step-00000020/rank") for path in files(place)) == world_size
    assert steps(place) == [10]
    to = checkpoints(place)
    restored = to.load(small_state(1))
    assert restored is not None
    assert (restored.measurement.step, restored.skipped) == (10, [])
    save(to, 20)
    assert sorted(files(place)) == [
        *(
            f"step-00000010/{name}"
            for name in ("manifest.json", *(f"rank-0000{n}.safetensors" for n in range(world_size)))
        ),
        *(f"step-00000020/{name}" for name in ("manifest.json", "rank-00000.safetensors")),
    ]


def save_twice(place: Place, rank: int, world_size: int, meeting_point: Path) -> None:
    """The work of a rank process."""
    torch.set_num_threads(1)
    context = single_process_context()
    if world_size > 1:
        join_process_group(
            rank=rank, world_size=world_size, init_method=f"file://{meeting_point}", timeout_seconds=PATIENCE_SECONDS
        )
        context = process_group_context()
    to = checkpoints(place, context)
    for step in (10, 20):
        save(to, step, context=context)


def test_a_process_that_is_thought_dead_completes_nothing(place: StoreUri) -> None:
    late = checkpoints(place)._files
    late.write(20, 1, "rank-00000.safetensors", lambda: [b"x"])
    save(checkpoints(place), 30)  # the trial goes on elsewhere
    with pytest.raises(FileNotFoundError, match=r"rank-00000.safetensors of step-00000020-0+1 in .* was deleted"):
        late.finish(20, 1, b"{}", others=["rank-00000.safetensors"], num_kept=2, damaged=())
    assert steps(place) == [30]


def test_a_server_that_stops_for_a_second_or_fails_now_and_then_is_waited_for(
    s3: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = in_a_store(s3.uri(tmp_path.name))
    to = checkpoints(place)
    s3.fail("PUT", times=3, status=500, code="InternalError")
    save(to, 10)
    assert s3.num_failed() == 3
    s3.process.send_signal(signal.SIGSTOP)
    checkpoint_states.start_to_save(to, 20)
    time.sleep(1)
    s3.process.send_signal(signal.SIGCONT)
    to.wait()
    s3.fail("GET", times=3, status=500, code="InternalError")
    assert newest_step(place) == 20
    assert SECRET not in caplog.text


def test_a_store_that_refuses_is_an_error_that_names_it_and_loses_nothing(
    s3: S3Server, tmp_path: Path, two_ranks: WarmRanks, caplog: pytest.LogCaptureFixture
) -> None:
    place = in_a_store(s3.uri(tmp_path.name))
    two_ranks.run(checkpoint_states.save_steps, place, [10])
    s3.fail("PUT", times=99, status=403, code="AccessDenied")
    shown = rf"s3://tuning/{tmp_path.name}\?scheme=http&endpoint_override=127.0.0.1:{s3.port}&region=us-east-1"
    with pytest.raises(CheckpointNotStored, match=rf"^checkpoint of step 20 in {shown}: rank 0: {shown} cannot take "):
        save(checkpoints(place), 20)
    s3.fail(f"GET .*/{tmp_path.name}/.*rank-00001", times=99, status=403, code="AccessDenied")
    for error in two_ranks.run(load_in_vain, place):  # one of them could have read what it was to read
        assert error.startswith("s3://tuning/")
        assert "cannot give step-00000010-" in error
    s3.fail("GET", times=99, status=403, code="AccessDenied")
    with pytest.raises(StoreFailed, match=f"^{shown} cannot be listed: "):
        newest_step(place)
    s3.heal()
    assert newest_step(place) == 10
    assert SECRET not in caplog.text


def load_in_vain(place: Place) -> str:
    context = process_group_context()
    try:
        checkpoints(place, context).load(small_state(1))
    except StoreFailed as error:
        return str(error)
    return ""


def test_a_server_that_is_gone_is_given_up(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(stores, "STORE_OUTAGE_SECONDS", 0.0)
    # A URI cannot tell pyarrow to try once: for each request it has a patience of its own, 6 s.
    gone = fs.S3FileSystem(
        endpoint_override="127.0.0.1:9",
        scheme="http",
        region="us-east-1",
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )
    monkeypatch.setattr(stores, "_connect", lambda _: (gone, "tuning"))
    with pytest.raises(CheckpointNotStored, match=r"in s3://tuning/x\?scheme=http.*onnect to server"):
        save(checkpoints(place_of("s3://tuning/x?scheme=http&endpoint_override=127.0.0.1:9&region=us-east-1")), 10)
    assert SECRET not in caplog.text


@pytest.mark.parametrize("way", ["path to s3", "s3 to path", "file to s3", "s3 to s3"])
def test_a_copy_is_loaded_like_the_original_wherever_both_lie(way: str, tmp_path: Path, s3: S3Server) -> None:
    def place(kind: str, name: str) -> Place:
        directory = tmp_path / name
        return place_of(
            {"path": str(directory), "file": directory.as_uri()}.get(kind) or s3.uri(f"{tmp_path.name}/{name}")
        )

    source, destination = (place(kind, name) for kind, name in zip(way.split(" to "), ("1", "2"), strict=True))
    for step in (10, 20):
        save(checkpoints(source), step)
    fork_checkpoint(source, destination, step=10, config=config())
    fork_checkpoint(source, destination, step=10, config=config())
    restored = checkpoints(destination).load(small_state(1))
    assert restored is not None
    assert (restored.measurement.step, restored.skipped) == (10, [])
    assert_same_bits(restored.state, small_state(10))
    with pytest.raises(CheckpointMissing, match="there is no checkpoint"):
        fork_checkpoint(source, destination, step=30, config=config())
    save(checkpoints(destination), 20)
    assert newest_step(destination) == 20
