"""The questions to the process that predicts memory, and its answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.trainers import broken_workloads, picky_model
from trainers.config import OptimizerConfig, TrialConfig
from trainers.config_part import Refusal, RefusedPart
from trainers.data.roots import DataRoots
from trainers.identity.shape import model_shape
from trainers.identity.values import ModelShape, ParameterShape
from trainers.memory.messages import (
    ActivationMemory,
    Answer,
    KeptMemory,
    PredictionProblem,
    ProblemKind,
    Quantity,
    Question,
    TrainedShape,
    answer_from_line,
    answer_to_line,
)
from trainers.memory.prediction import predicted_bytes
from trainers.workloads.describe import environment_of_children
from trainers.workloads.registry import load


def config_of(workload: str = "digits-mlp", optimizer: OptimizerConfig | None = None, **options: Any) -> TrialConfig:
    return TrialConfig(
        workload=workload,
        workload_options=options,
        optimizer=optimizer or OptimizerConfig("adamw"),
        num_steps=4,
        batch_size=8,
        evaluate_every=2,
    )


@pytest.mark.parametrize(
    "question",
    [
        Question(config_of(hidden_sizes=[8]), Quantity.KEPT),
        Question(config_of(), Quantity.ACTIVATIONS, 4, "cuda", DataRoots(("/data",), ("/data/private",), "SETTING")),
    ],
)
def test_a_question_is_read_as_it_was_written(question: Question) -> None:
    line = question.to_line()
    assert "\n" not in line
    assert Question.from_line(line.encode()) == question


@pytest.mark.parametrize(
    "answer",
    [
        KeptMemory(100, 40, None, 50),
        KeptMemory(100, 40, 2**40, 50),
        ActivationMemory(7),
        TrainedShape(ModelShape((ParameterShape("linear", (8, 4), 2), ParameterShape("vector", (8,), 2)))),
        *(PredictionProblem(kind, "no\nway") for kind in ProblemKind),
        *(Refusal(part, "no\nway", "paths[0]") for part in RefusedPart),
    ],
)
def test_an_answer_is_read_as_it_was_written(answer: Answer) -> None:
    line = answer_to_line(answer)
    assert "\n" not in line
    found = answer_from_line(line.encode())
    assert found == answer
    assert not isinstance(found, PredictionProblem) or isinstance(found.kind, ProblemKind)
    assert not isinstance(found, Refusal) or isinstance(found.part, RefusedPart)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"hello",
        b"1",
        b"[]",
        b'["KeptMemory",{}]',
        b'["TrainedShape",{"shape":{}}]',
        b'["Other",{}]',
        b'["PredictionProblem",{"message":""}]',
        b'["PredictionProblem",1]',
    ],
)
def test_what_is_no_answer_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"is no answer|Expecting value|not enough values"):
        answer_from_line(line)


def asked(*questions: Question) -> list[Answer]:
    done = subprocess.run(
        [sys.executable, "-m", "trainers.memory.prediction"],
        input="".join(f"{question.to_line()}\n" for question in questions),
        env=environment_of_children(),
        capture_output=True,
        text=True,
        check=True,
    )
    return [answer_from_line(line) for line in done.stdout.splitlines()]


@pytest.mark.processes
def test_the_process_says_of_each_question_what_is_at_fault(tmp_path: Path) -> None:
    lora, unknown = OptimizerConfig("lora-rite"), OptimizerConfig("adamw", {"beta": 0.9})
    picky, finds_no_data = f"{picky_model.__name__}:Picky", f"{picky_model.__name__}:FindsNoData"
    names_nothing, forgets = f"{picky_model.__name__}:NamesNoActivation", f"{picky_model.__name__}:ForgetsItsModel"
    looks = f"{picky_model.__name__}:LooksAtItsWeights"
    raises = f"{broken_workloads.__name__}:Raises"
    roots = DataRoots((str(tmp_path),))
    wanted = [
        (Question(config_of("no-such"), Quantity.KEPT), RefusedPart.WORKLOAD, "", "no-such"),
        (Question(config_of(dropout=2), Quantity.KEPT), RefusedPart.OPTIONS, "dropout", "got 2"),
        (Question(config_of(dropout=2), Quantity.ACTIVATIONS), RefusedPart.OPTIONS, "dropout", "got 2"),
        (Question(config_of(picky, width=3), Quantity.KEPT), RefusedPart.OPTIONS, "", "must be even, got 3"),
        (Question(config_of(forgets), Quantity.KEPT), RefusedPart.WORKLOAD, "", "gives a NoneType, no nn.Module"),
        (
            Question(config_of("text-lm", path="/srv/x"), Quantity.KEPT, data_roots=roots),
            RefusedPart.OPTIONS,
            "path",
            "in none of the directories that jobs may read",
        ),
        (Question(config_of(optimizer=lora), Quantity.KEPT), RefusedPart.OPTIMIZER, "", "low-rank adapters"),
        (Question(config_of(optimizer=unknown), Quantity.KEPT), RefusedPart.ARGUMENTS, "", "got 0.9"),
    ]
    failing = [
        (Question(config_of(finds_no_data), Quantity.KEPT), ProblemKind.CONSTRUCTION, "/nowhere/data.csv"),
        (Question(config_of(names_nothing), Quantity.KEPT), ProblemKind.CONSTRUCTION, "'gelu' (picky_model.py, line "),
        (Question(config_of(looks), Quantity.KEPT), ProblemKind.UNKNOWN, "meta tensors"),
        (Question(config_of(raises), Quantity.ACTIVATIONS), ProblemKind.STEP, "KeyError"),
    ]
    sound = config_of()
    *told, kept, activations, shape = asked(
        *(row[0] for row in wanted),
        *(row[0] for row in failing),
        Question(sound, Quantity.KEPT),
        Question(sound, Quantity.ACTIVATIONS),
        Question(sound, Quantity.SHAPE),
    )
    for refusal, (question, part, option, words) in zip(told[: len(wanted)], wanted, strict=True):
        assert isinstance(refusal, Refusal), question
        assert (refusal.part, refusal.option) == (part, option), refusal
        assert words in refusal.message
    for problem, (question, kind, words) in zip(told[len(wanted) :], failing, strict=True):
        assert isinstance(problem, PredictionProblem), question
        assert problem.kind is kind
        assert words in problem.message
    assert isinstance(kept, KeptMemory)
    assert (kept.num_bytes, kept.device_bytes) == (predicted_bytes(sound), None)
    assert isinstance(activations, ActivationMemory)
    assert activations.num_bytes > 0
    assert shape == TrainedShape(model_shape(load("digits-mlp", {}).build_model()))
