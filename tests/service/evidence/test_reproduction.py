"""A recommendation that is trained again: with which seeds, in which band, and what is said of it."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from service.cli.reading.reproduce_command import check_trainable, trained
from service.errors import ServiceError
from service.evidence.formats.torchrun import torchrun_line
from service.evidence.recommended import Ranks
from service.evidence.reproduction import Repeated, other_versions, outcome_lines, repeats_of, reproduction
from tests.support.service.confirmed import recommendation_of
from trainers.config import AveragingConfig, OptimizerConfig, TrialConfig
from trainers.installation.distribution import commit
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workloads.registry import load


def test_the_trials_with_new_seeds_are_trained_again_and_held_against_the_band_of_a_further_seed() -> None:
    evidence = recommendation_of({0: [0.31, 0.33], 2: [0.41, 0.42]}).evidence
    repeats = repeats_of(evidence)
    assert [one.value for one in repeats] == [0.31, 0.33]
    found = reproduction(evidence, [Repeated(repeats[0], repeats[0].value), Repeated(repeats[1], 0.34)])
    assert found.band.low < 0.31 < 0.33 < found.band.high
    assert found.is_reproduced
    same, other, answer = outcome_lines(found)
    assert same.endswith("the same to the last digit")
    assert other.endswith("+3.0%")
    assert answer.startswith("Reproduced: all 2 fall in the band")
    far = reproduction(evidence, [Repeated(repeats[0], 10 * found.band.high), Repeated(repeats[1], None)])
    assert not far.is_reproduced
    assert outcome_lines(far)[1].endswith("it did not come to its end")
    assert outcome_lines(far)[-1].startswith("Not reproduced: 0 of 2 in the band")


def test_a_lucky_seed_outside_the_band_is_reproduced_by_the_value_that_it_had() -> None:
    evidence = recommendation_of({0: [0.31, 0.33], 2: [0.41, 0.42]}).evidence
    inside, other = repeats_of(evidence)
    lucky = dataclasses.replace(other, value=0.001)
    found = reproduction(evidence, [Repeated(inside, inside.value), Repeated(lucky, 0.001)])
    assert not found.band.holds(0.001)
    assert found.is_reproduced
    assert outcome_lines(found)[-1].startswith("Reproduced: 1 of 2 in the band, and the rest at their old value")
    alone = reproduction(evidence, [Repeated(lucky, 0.001)])
    assert outcome_lines(alone)[-1].startswith("Reproduced: its old value, outside of the band")
    assert not reproduction(evidence, [Repeated(lucky, 0.002)]).is_reproduced


def test_without_confirmation_what_one_seed_found_is_trained_again() -> None:
    evidence = dataclasses.replace(recommendation_of({0: [0.31, 0.33], 2: [0.41, 0.42]}).evidence, confirmation=None)
    [one] = repeats_of(evidence)
    assert (one.seed, one.trial) == (evidence.best.stored_config.seed, evidence.best.number)
    band = reproduction(evidence, []).band
    assert band.holds(one.value)
    assert not band.holds(1.02 * one.value)


def test_versions_that_are_not_in_use_now_are_left_out() -> None:
    assert other_versions({"torch": "2.12", "numpy": "2.4", "gone": "1"}, {"torch": "2.13", "numpy": "2.4"}) == [
        "torch is 2.13, and was 2.12"
    ]


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_class_that_is_not_here_is_named_before_anything_is_started() -> None:
    check_trainable("tests.support.trainers.broken_workloads:Sound", {})
    with pytest.raises(
        ServiceError, match=r"^no_such_module:Mine cannot be trained here: there is no module 'no_such_mo"
    ):
        check_trainable("no_such_module:Mine", {})


READS_BESIDE = """
from pathlib import Path
from tests.support.trainers.broken_workloads import Sound

class Mine(Sound):
    def __init__(self, *, table: str = "table.csv"):
        super().__init__()
        Path({base}, table).read_text()
"""


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_class_that_reads_a_file_by_a_relative_path_is_told_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its, other = tmp_path / "its", tmp_path / "other"
    for directory in (its, other):
        directory.mkdir()
    (its / "table.csv").write_text("1,2\n")
    (its / "of_the_worker.py").write_text(READS_BESIDE.format(base="''"))
    (its / "of_the_file.py").write_text(READS_BESIDE.format(base="Path(__file__).parent"))
    monkeypatch.syspath_prepend(its)
    monkeypatch.chdir(its)
    check_trainable("of_the_worker:Mine", {})
    monkeypatch.chdir(other)
    check_trainable("of_the_file:Mine", {})
    for options, name in (({}, "table.csv"), ({"table": "gone.csv"}, "gone.csv")):
        with pytest.raises(ServiceError) as refused:
            check_trainable("of_the_worker:Mine", options)
        told = str(refused.value)
        assert told.startswith(
            "of_the_worker:Mine cannot be trained here: of_the_worker:Mine cannot be built: FileNotFo"
        )
        assert f"No such file or directory: '{name}'" in told
        assert "run it in the one where the job's worker ran" in told


def test_a_path_without_data_is_named_before_anything_is_started(tmp_path: Path) -> None:
    check_trainable("digits-mlp", {})
    check_trainable("image-folder", {"path": str(Path(__file__).parent)})
    missing = str(tmp_path / "gone" / "images")
    with pytest.raises(ServiceError) as refused:
        check_trainable("image-folder", {"path": missing})
    told = f"image-folder cannot be trained here: option path: there is nothing at {missing!r}: {str(tmp_path)!r} is as"
    assert str(refused.value).startswith(told)


@pytest.mark.processes
def test_the_command_of_a_recommendation_is_run_and_gives_what_was_measured_and_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("PET_LOG_DIR", raising=False)  # in which torchrun's stay during these tests
    config = TrialConfig(
        workload="digits-mlp",
        optimizer=OptimizerConfig("adamw", {"lr": 0.01}),
        num_steps=4,
        evaluate_every=2,
        batch_size=16,
        seed=7,
        averaging=AveragingConfig("ema", {"decay": 0.7}),
    )
    found = recommendation_of({0: [0.31, 0.33], 2: [0.41, 0.42]})
    best = dataclasses.replace(found.evidence.best, config={**config.to_json(), "seed": 3})
    evidence = dataclasses.replace(found.evidence, best=best)
    line = torchrun_line(found.model_copy(update={"evidence": evidence, "ranks": Ranks(1, "cpu", 1)}))
    assert line is not None
    file = tmp_path / "winner.safetensors"
    *_, last = train(config, single_process_context())
    assert trained(line, 7, "validation_loss", weights=file) == last.metrics["validation_loss"]
    # Torch's compiler has a cache there, one for all processes.
    assert [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor_")] == []
    workload = load("digits-mlp", {})
    model = workload.build_model()
    model.load_state_dict(load_file(file))
    with torch.no_grad():
        total, weight = workload.evaluate(model.eval(), rank=0, world_size=1, device="cpu")["validation_loss"]
    assert float(total) / float(weight) == last.metrics["validation_loss"]


def test_the_commit_is_read_of_a_branch_packed_or_not_of_a_detached_head_and_of_no_checkout(tmp_path: Path) -> None:
    assert commit(tmp_path) is None
    git = tmp_path / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit(tmp_path) is None
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{'b' * 40} refs/heads/main\n")
    assert commit(tmp_path) == "b" * 40
    (git / "refs/heads/main").write_text("a" * 40 + "\n")
    assert commit(tmp_path) == "a" * 40
    (git / "HEAD").write_text("c" * 40 + "\n")
    assert commit(tmp_path) == "c" * 40
