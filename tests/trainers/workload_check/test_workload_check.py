"""The checker: a sound workload passes, and one that breaks a rule fails it and no other."""

from __future__ import annotations

import atexit
import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.trainers import broken_workloads, torch_loader, wrong_kinds
from tests.support.waiting import PATIENCE_SECONDS, started, wait_until
from trainers.workload.description import TokensPerExample
from trainers.workload_check.__main__ import main
from trainers.workload_check.child import outcome_of
from trainers.workload_check.outcome import RuleOutcome
from trainers.workload_check.rules import RULES
from trainers.workload_check.subject import Subject
from trainers.workload_check.supervisor import check
from trainers.workloads.describe import environment_of_children

MODULE = broken_workloads.__name__
OF_DATA = ["batches", "data order", "sharding", "start step", "epoch"]


def outcomes(name: str) -> dict[str, RuleOutcome]:
    """The outcome of each rule, in this process; without the rule that starts another."""
    subject = Subject(name, {}, batch_size=12)
    return {rule.name: outcome_of(rule, subject) for rule in RULES if rule.name != "processes"}


def outcome(rule_name: str, class_name: str, module: str = MODULE) -> RuleOutcome:
    (rule,) = (rule for rule in RULES if rule.name == rule_name)
    return outcome_of(rule, Subject(f"{module}:{class_name}", {}, batch_size=12))


def not_ok(found: dict[str, RuleOutcome]) -> dict[str, str]:
    return {name: one.status for name, one in found.items() if one.status not in ("ok", "skipped")}


@pytest.mark.slow
@pytest.mark.usefixtures("_few_validation_sequences")
@pytest.mark.parametrize("name", ["digits-mlp", "digits-convnet", "digits-autoencoder", "stdlib-gpt"])
def test_a_built_in_workload_keeps_every_rule(name: str) -> None:
    found = outcomes(name)
    assert not_ok(found) == {}, found


@pytest.mark.parametrize("name", ["Sound", "SoundStream", "Extended"])
def test_a_sound_workload_keeps_every_rule(name: str) -> None:
    found = outcomes(f"{MODULE}:{name}")
    assert not_ok(found) == {}, found
    skipped = {rule for rule, one in found.items() if one.status == "skipped"}
    assert skipped == (set() if name == "Extended" else {"blocks", "parameter groups", "tokens", "counts"})


# What a trial cannot do without stops it as well; values that come by chance differ between ranks, too.
@pytest.mark.parametrize(
    ("name", "failed", "said"),
    [
        ("Undescribed", ["description"], r"default_num_steps must be an integer >= 1, got 0"),
        ("RefusesItsDefaults", ["construction", "trials"], r"scale must not be negative, got -1.0"),
        ("EvaluatesWithoutDevice", ["construction", "metrics", "trials"], r"evaluate takes no argument device"),
        ("SharesItsModel", ["model", "trials"], r"the same module each time"),
        ("DrawsItsModelByChance", ["model", "trials"], r"two models of one seed differ in 0\.bias, 0\.weight"),
        ("HasNothingToTrain", ["model", "loss", "trials"], r"no parameter that is trained"),
        ("IgnoresTheIndices", ["data order", "sharding"], r"seeds 1 and 2 give the same batches"),
        ("RefusesTheRank", ["construction", *OF_DATA, "trials"], r"train_batches takes no argument rank, world_size"),
        ("AsksForMoreThanIndices", ["construction", *OF_DATA, "trials"], r"batch cannot be called .* argument: 'seed'"),
        ("WithoutBatches", ["construction", *OF_DATA, "trials"], r"there is neither batch nor train_batches"),
        (
            "EndsAfterOneBatch",
            ["batches", *OF_DATA[1:], "trials"],
            r"the batches of rank 0 of 1 end after 1 step\. They must",
        ),
        (
            "EndsWithTheEpoch",
            ["batches", "start step", "epoch", "trials"],
            r"the batches of 50 examples end after 1 step",
        ),
        ("IgnoresTheSeed", ["data order"], r"seeds 1 and 2 give the same batches"),
        ("IgnoresTheRank", ["sharding"], r"6 examples go to more than one of 2 ranks"),
        ("SeedsEachRankDifferently", ["sharding"], r"step 0, (2 ranks together see other|\d examples go to more)"),
        ("IgnoresTheStartStepOnOtherRanks", ["start step"], r"from start_step=1 are not those of a stream"),
        ("DrawsWithReplacement", ["epoch"], r"of the first 50 examples .* are not among the next 50"),
        ("GivesALossPerExample", ["loss", "trials"], r"the loss has the shape \(12,\)"),
        ("GivesANumberAsLoss", ["loss", "trials"], r"loss gives a float"),
        ("OverflowsAtOnce", ["loss", "trials"], r"the loss of a fresh model is inf"),
        ("HasUnusedParameters", ["gradient"], r"no gradient reaches 0\.spare\.weight, 0\.spare\.bias"),
        ("SumsItsLoss", ["mean loss"], r"a sum over the batch"),
        ("GivesAnUndeclaredMetric", ["metrics"], r"rank 0 of 1 gives accuracy, which the description's metrics lack"),
        ("LeavesAMetricToRankZero", ["metrics"], r"rank 1 of 2 does not give validation_loss"),
        ("GivesPlainMeans", ["metrics", "trials"], r"Give \(weighted sum, weight\)"),
        ("NeedsGradientsToEvaluate", ["metrics", "trials"], r"evaluate needs gradients"),
        ("EvaluatesAllOnEveryRank", ["shared evaluation"], r"the sum of validation_loss is .* on one rank"),
        ("EvaluatesByChance", ["repeated evaluation", "shared evaluation"], r"validation_loss changes from one"),
        ("CountsEvaluationsInTheModel", ["untouched model"], r"an evaluation changes num_evaluations"),
        ("KeepsStateInTheClass", ["trials"], r"the second of two equal trials in one process gives other numbers"),
        ("KeepsStateOutOfTheCheckpoint", ["resume"], r"after a resume at step 2 the measurements are others"),
        ("NestsItsBlocks", ["blocks"], r"one in the other"),
        ("ForgetsBiases", ["parameter groups", "trials"], r"parameter 0\.bias is in no group"),
        ("HasNoTokens", ["tokens"], r"tokens_per_example is 0"),
        ("NamesCountsLate", ["counts"], r"counts gives \[\] at first and \['unreadable'\] later"),
        ("CountsWhatItDoesNotDeclare", ["counts"], r"the description's metrics lack torn"),
        (
            "Raises",
            ["loss", "trials"],
            r"KeyError: 'label\\x00of\\x1b\[31m image\\n17' \(broken_workloads\.py, line \d+\)",
        ),
    ],
)
def test_a_workload_that_breaks_a_rule_fails_that_one(name: str, failed: list[str], said: str) -> None:
    found = outcomes(f"{MODULE}:{name}")
    assert not_ok(found) == dict.fromkeys(failed, "failed"), found
    assert re.search(said, found[failed[0]].text), found[failed[0]].text


@pytest.mark.parametrize(
    ("rule", "name", "said"),
    [
        ("model", "BuildsNoModule", "build_model gives a dict. Give a torch.nn.Module"),
        ("metrics", "EvaluatesToAList", "evaluate gives a list. Give {name: (weighted sum, weight)}"),
        (
            "metrics",
            "EvaluatesNothing",
            "the weight of validation_loss is 0 over all ranks. Is the validation set empty?",
        ),
        ("counts", "CountsAList", "counts gives a list. Give {name: number}"),
    ],
)
def test_a_value_of_another_kind_is_named_with_what_to_give(rule: str, name: str, said: str) -> None:
    found = outcome(rule, name, wrong_kinds.__name__)
    assert (found.status, found.text) == ("failed", said)


@pytest.mark.processes
@pytest.mark.parametrize("name", ["ReadsByALoader", "ReadsAStream"])
def test_the_loaders_of_the_manual_keep_every_rule(name: str) -> None:
    assert not_ok(outcomes(f"{torch_loader.__name__}:{name}")) == {}


def test_a_workload_that_finds_no_data_fails_for_that_alone() -> None:
    found = outcomes(f"{wrong_kinds.__name__}:FindsNoExamples")
    assert not_ok(found) == dict.fromkeys(("construction", "metrics", "trials"), "failed")
    assert found["construction"].text == (
        "num_train_examples must be an integer >= 1, got 0. Are the data where the class looks for them?"
    )
    assert "FindsNoExamples has no training examples" in found["trials"].text
    assert {found[rule].text for rule in ("data order", "epoch", "start step")} == {"there are no training examples"}
    assert found["repeated evaluation"].text == "nothing is evaluated"


def test_a_description_tells_the_tokens_that_the_class_has() -> None:
    subject = Subject("stdlib-gpt", {}, batch_size=12)
    (rule,) = (rule for rule in RULES if rule.name == "tokens")
    assert outcome_of(rule, subject).text == "64 tokens per example"
    subject.description = replace(subject.description, tokens_per_example=TokensPerExample(None, "size", {"tiny": 65}))
    assert "is 64, and by the description 65" in outcome_of(rule, subject).text


def test_batches_from_a_global_generator_are_found() -> None:
    found = outcome("data order", "ShufflesWithAGlobalGenerator")
    assert found.status == "failed"
    assert found.text.startswith("the same seed gave other batches the second time. Shuffle and augment with")


def test_batches_that_end_with_an_epoch_too_long_to_read_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.workload_check.data_rules.MAX_EXAMPLES", 10)
    monkeypatch.setattr("trainers.workload_check.data_rules.EPOCH_BATCH_SIZE", 4)
    assert outcome("epoch", "EndsWithTheEpoch").status == "ok"
    found = outcome("batches", "EndsWithTheEpoch")
    assert (found.status, found.text.partition(".")[0]) == ("failed", "the batches of 4 examples end after 12 steps")
    assert outcome("start step", "EndsWithTheEpoch").text.startswith("the batches of rank 1 of 2 end after 4 steps")
    # A stream that would read for too long up to a later step is not asked for it.
    monkeypatch.setattr("trainers.workload_check.data_rules.MAX_SEEK_SECONDS", -float("inf"))
    assert outcome("batches", "EndsWithTheEpoch").status == "ok"


def test_a_loss_that_does_not_fall_is_only_doubtful() -> None:
    found = outcomes(f"{MODULE}:LearnsNothing")
    assert not_ok(found) == {"learning": "warning"}
    assert "take its loss from 1 to 1" in found["learning"].text


@pytest.mark.processes
def test_data_that_depend_on_the_process_are_found() -> None:
    found = outcome("processes", "OrdersByHash")  # of `Sound` the command says below that it keeps this rule, too
    assert found.status == "failed", found.text
    assert "another process builds the batches differently" in found.text


class HasAComplexParameter(broken_workloads.Sound):
    def build_model(self) -> nn.Module:
        model = super().build_model()
        model.register_parameter("phase", nn.Parameter(torch.ones(2, dtype=torch.complex64)))
        return model


def test_complex_parameters_are_found_by_name() -> None:
    found = outcome("model", "HasAComplexParameter", __name__)
    assert found.status == "failed"
    assert found.text.startswith(
        "trained parameters are not real floating-point numbers: phase (torch.complex64). Keep"
    )


class RefusesToEvaluate(broken_workloads.Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> object:
        raise RuntimeError("the table does not require grad, and has no rows")


def test_an_evaluation_that_fails_with_gradients_as_well_is_told_by_its_own_error() -> None:
    assert "the table does not require grad, and has no rows" in outcome("metrics", "RefusesToEvaluate", __name__).text


class PrintsAtExit(broken_workloads.Sound):
    def build_model(self) -> nn.Module:
        atexit.register(print, "goodbye")
        return super().build_model()


@pytest.mark.processes
def test_what_is_printed_at_exit_is_no_digest() -> None:
    found = outcome("processes", "PrintsAtExit", __name__)
    atexit.unregister(print)
    assert (found.status, found.text) == ("ok", "a second process builds the same model and batches")


def test_a_repeated_example_in_a_part_of_an_epoch_is_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainers.workload_check.data_rules.MAX_EXAMPLES", 10)
    monkeypatch.setattr("trainers.workload_check.data_rules.EPOCH_BATCH_SIZE", 4)
    assert outcome("epoch", "DrawsWithReplacement").status == "warning"
    assert outcome("epoch", "Sound").text == "no repetitions to speak of in the first 40 of 50 examples"


def test_examples_that_are_altered_each_time_cannot_be_counted() -> None:
    assert outcome("epoch", "AddsNoise").text.startswith("examples are altered each time they come")
    assert not_ok(outcomes(f"{MODULE}:AddsNoise")) == {}


@pytest.mark.processes
def test_a_workload_that_leaves_hangs_or_prints_garbage_does_not_take_the_checker_along() -> None:
    found = {
        one.rule: one for one in check(f"{MODULE}:LeavesAndHangs", {}, batch_size=12, timeout_seconds=12, num_threads=1)
    }
    assert list(found) == [rule.name for rule in RULES]
    assert found["model"].status == "ok"
    assert "it called sys.exit(3)" in found["batches"].text
    # The metrics of the third rank end the process, and blocks hang; the rules after them are still checked.
    for rule in ("metrics", "shared evaluation"):
        assert "its process ended with exit status 7; its last output: " in found[rule].text
        assert found[rule].text.isprintable()
    assert found["blocks"].text.startswith("it takes more than 12 s")
    sound = {"description", "construction", "model", "repeated evaluation", "untouched model"}
    assert {name for name, one in found.items() if one.status == "ok"} == sound
    assert found["counts"].status == "skipped"


@pytest.mark.processes
def test_a_workload_that_hangs_when_it_is_built_is_given_up() -> None:
    found = list(check(f"{MODULE}:HangsWhenBuilt", {}, batch_size=12, timeout_seconds=8, num_threads=1))
    assert [one.status for one in found] == ["ok", "failed"] + ["skipped"] * (len(RULES) - 2)
    assert found[1].text.startswith("it takes more than 8 s")
    assert found[2].text == "the process does not survive 'construction'"


@pytest.mark.processes
def test_the_command_finds_a_class_in_the_current_directory_and_passes_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "from tests.support.trainers.broken_workloads import Sound\n"
        "class Mine(Sound):\n"
        "    def __init__(self, *, scale: float) -> None:\n"
        "        assert scale == 0.5, scale\n"
        "        super().__init__(scale=scale)\n"
    )
    monkeypatch.chdir(tmp_path)
    status = main(["mine:Mine", "--option", "scale=0.5"])
    told = capfd.readouterr()
    assert (status, told.err) == (0, ""), told.out
    lines = told.out.splitlines()
    assert lines[-1] == "23 rules: 19 ok, 4 skipped"
    assert [line.split()[0] for line in lines[:-1]] == ["ok"] * 19 + ["skipped"] * 4
    assert re.search(r"^ok +processes ", told.out, re.MULTILINE)


@pytest.mark.processes
def test_the_command_fails_with_a_missing_option_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "from tests.support.trainers.broken_workloads import Sound\n"
        "class Mine(Sound):\n"
        "    def __init__(self, *, path: str) -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["mine:Mine"]) == 1
    told = capfd.readouterr()
    said = "workload_options.path: is required by mine:Mine: str. Add --option path=..."
    assert re.search(rf"^failed +description +{re.escape(said)}$", told.out, re.MULTILINE)
    alike = r"^skipped +19 rules +the options do not fit: construction, model, batches, .*, counts$"
    assert re.search(alike, told.out, re.MULTILINE)
    assert len(told.out.splitlines()) == 4  # and those that need a description
    assert told.out.splitlines()[-1] == "23 rules: 1 failed, 22 skipped"
    assert told.err == ""
    assert main(["mine:Mine", "--json"]) == 1
    items = json.loads(capfd.readouterr().out)["items"]
    failed = {each["rule"]: each["text"] for each in items if each["status"] == "failed"}
    assert failed == {"description": said}


@pytest.mark.processes
def test_the_command_tells_what_the_loop_says_of_a_class_without_a_line_of_this_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "from tests.support.trainers.broken_workloads import Sound\n"
        "class Mine(Sound):\n"
        "    def loss(self, model, batch):\n"
        "        return {}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["mine:Mine"]) == 1
    told = capfd.readouterr().out
    said = "ValueError: Mine.loss must give one number as a tensor with a gradient, got a dict: give the tensor, "
    assert f"{said}without .item(). Run that by itself" in told


def test_an_unknown_option_is_named_beside_those_that_are_known() -> None:
    (rule,) = (rule for rule in RULES if rule.name == "description")
    found = outcome_of(rule, Subject(f"{MODULE}:Sound", {"scael": 1.0}, batch_size=12))
    assert found.status == "failed"
    assert found.text.startswith(f"workload_options.scael: unknown option of {MODULE}:Sound (known: scale), got 1.0")
    assert found.text.endswith(" 1.0: did you mean 'scale'? Leave it out, rename it or give another value")


def test_a_mistyped_name_is_answered_with_the_nearest_and_the_way_to_an_example() -> None:
    (rule,) = (rule for rule in RULES if rule.name == "description")
    text = outcome_of(rule, Subject("digits-mpl", {}, batch_size=12)).text
    assert text.endswith(": did you mean 'digits-mlp'? `shampoo-tuner workload new my-model` prints an example")


def test_a_description_is_told_by_the_names_in_it() -> None:
    assert outcome("description", "Sound").text == "metrics train_loss, validation_loss; options scale"


@pytest.mark.processes
def test_an_interrupted_command_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import pathlib, time\n"
        "from tests.support.trainers.broken_workloads import Sound\n"
        "class Mine(Sound):\n"
        "    def __init__(self) -> None:\n"
        "        pathlib.Path('began').touch()\n"
        "        time.sleep(1000)\n"
    )
    command = [sys.executable, "-m", "trainers.workload_check", "mine:Mine"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(command, cwd=tmp_path, env=environment_of_children(), **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ok       description ")
        wait_until((tmp_path / "began").exists, "the workload is built")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (130, "")


@pytest.mark.parametrize(
    "arguments", [["a:B", "--option", "x"], ["a:B", "--batch-size", "8"], ["a:B", "--threads", "0"], []]
)
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
