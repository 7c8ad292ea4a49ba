"""The formats of a recommendation that are ours: data, Python, and the command that trains one."""

from __future__ import annotations

import dataclasses
import json
import shlex

import pytest
import yaml

from service.evidence.formats.torchrun import torchrun_line
from service.evidence.formats.written import Format, written
from service.evidence.recommended import Ranks, RecommendedConfig
from tests.support.service.confirmed import recommendation_of
from trainers import run
from trainers.config import OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context

TRIAL = TrialConfig(
    workload="digits-mlp",
    optimizer=OptimizerConfig("shampoo", {"lr": 0.01, "max_preconditioner_dim": 64}),
    num_steps=4,
    evaluate_every=2,
    batch_size=16,
    seed=7,
)


def recommendation(**changed: object) -> RecommendedConfig:
    found = recommendation_of({0: [0.31, 0.33], 2: [0.41, 0.42]})
    best = dataclasses.replace(found.evidence.best, config=TRIAL.to_json())
    evidence = dataclasses.replace(found.evidence, best=best)
    return found.model_copy(update={"evidence": evidence, "ranks": Ranks(1, "cpu", 1), **changed})


def test_the_command_gives_the_trials_measurements_to_the_last_digit(capsys: pytest.CaptureFixture[str]) -> None:
    line = written(recommendation(), Format.TORCHRUN)
    assert line.cannot_say == []
    torchrun, nproc, ranks, module_flag, module, *arguments = shlex.split(line.text or "")
    assert (torchrun, nproc, ranks, module_flag, module) == ("torchrun", "--nproc-per-node", "1", "-m", run.__name__)
    assert run.main(arguments) == run.DONE
    printed = [json.loads(line)["metrics"]["validation_loss"] for line in capsys.readouterr().out.splitlines()]
    assert printed == [one.metrics["validation_loss"] for one in train(TRIAL, single_process_context())]


def test_the_command_stands_in_every_format() -> None:
    recommended = recommendation()
    line = torchrun_line(recommended)
    assert line is not None
    for form in Format:
        found = written(recommended, form)
        if form is Format.JSON:
            assert json.loads(found.text or "")["torchrun"] == line
        elif form is Format.YAML:
            assert yaml.safe_load(found.text or "")["torchrun"] == line
        elif found.text is not None:
            assert line in found.text


def test_the_command_names_ranks_device_threads_and_code_that_must_be_there() -> None:
    found = written(recommendation(ranks=Ranks(4, "cuda", 2), code_sha256="c" * 64), Format.TORCHRUN)
    assert (found.text or "").startswith("torchrun --nproc-per-node 4 -m trainers.run '{")
    assert (found.text or "").endswith("}' --device cuda --threads 2")
    assert "PYTHONPATH" in " ".join(found.cannot_say)


def test_a_recommendation_that_is_too_old_has_no_command_and_says_why() -> None:
    found = written(recommendation(ranks=None), Format.TORCHRUN)
    assert found.text is None
    assert "older" in found.cannot_say[0]
    assert json.loads(written(recommendation(ranks=None), Format.JSON).text or "")["torchrun"] is None


def test_json_that_is_none_is_refused_as_the_argument_that_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["{not json"]) == run.REFUSED
    assert capsys.readouterr().err.startswith("refused: config: is not JSON")
