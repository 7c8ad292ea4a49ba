"""The process that asks all tuned models of the shipped table together."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from importlib.machinery import ModuleSpec

import pytest

from service.scheduler.policy.pooled_trials import answers
from service.transfer.candidates import TunedTrial, shipped_members
from service.transfer.pooled import NotPooled, PooledAnswers, PoolMember, PoolQuestion
from service.transfer.situation import FAMILY_MEMBERS
from service.use_cases.untuned import asking
from service.use_cases.untuned.asking import ask_pooled, question_of
from tests.support.service.tuned import PATIENCE_SECONDS

TARGET = shipped_members()[1].situation


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    asking._asked.cache_clear()
    yield
    asking._asked.cache_clear()


def question() -> PoolQuestion:
    found = question_of(TARGET, FAMILY_MEMBERS)
    assert found is not None
    return found


@pytest.mark.processes
def test_the_process_answers_as_the_model_of_all_trials_does(
    warm_process: None,  # noqa: ARG001 # it is forked
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "POOL_SECONDS", PATIENCE_SECONDS)
    found = ask_pooled(question())
    assert isinstance(found, PooledAnswers), found
    expected = answers(question())
    assert {one.preset for one in found.of_presets} == set(FAMILY_MEMBERS)
    for one, other in zip(found.of_presets, expected.of_presets, strict=True):
        # With another number of threads, sums may round otherwise, and another draw be the best.
        assert one.preset == other.preset
        assert dict(one.parameters) == pytest.approx(dict(other.parameters), rel=0.05)
    assert ask_pooled(question()) is found  # kept


@pytest.mark.processes
def test_a_process_that_dies_or_is_too_slow_has_no_answer_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(asking, "POOL_SECONDS", PATIENCE_SECONDS)
        patch.setattr(asking, "POOL_MODULE", "tests.support.killed")
        found = ask_pooled(question())
        assert found == NotPooled("the process that asks them ended the process with signal SIGKILL")
    with monkeypatch.context() as patch:
        patch.setattr(asking, "POOL_SECONDS", 0.01)
        assert ask_pooled(question()) == NotPooled("the process that asks them takes more than 0.01 s")
    with monkeypatch.context() as patch:
        patch.setattr(asking, "POOL_SECONDS", PATIENCE_SECONDS)
        patch.setattr(asking, "POOL_MODULE", "service.no_such_module")
        broken = ask_pooled(question())
        assert isinstance(broken, NotPooled)
        assert "No module named service.no_such_module" in broken.why


def test_without_scipy_and_without_a_process_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_scipy(name: str) -> ModuleSpec | None:
        return None if name == "scipy" else importlib.machinery.ModuleSpec(name, None)

    def no_process(*_arguments: object, **_options: object) -> None:
        raise OSError("Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr("trainers.workloads.describe.start", no_process)
        assert ask_pooled(question()) == NotPooled("Cannot allocate memory")
    monkeypatch.setattr(importlib.util, "find_spec", no_scipy)
    assert ask_pooled(question()) == NotPooled("SciPy is not installed beside this API")


def test_nobody_is_asked_where_fewer_than_two_models_are_near() -> None:
    far = TARGET.features.__class__(width=1e6, fan_in=1e6, depth=200.0, shares={"linear": 1.0})
    target = TARGET.__class__(far, 32, 100)
    trials = TunedTrial(0.5, {"lr": 0.001}), TunedTrial(None, {"lr": 0.1})
    own = PoolMember("mine", "soap", target, trials, job_id="job_1")
    of_another_method = dataclasses.replace(own, preset="kl")
    assert question_of(target, FAMILY_MEMBERS) is None
    assert question_of(target, FAMILY_MEMBERS, [own, of_another_method]) is None
    assert question_of(target, ["kl"], [own, own]) is None
    found = question_of(target, FAMILY_MEMBERS, [own, own, of_another_method])
    assert found is not None
    assert (found.members("soap"), found.members("kl"), found.members("spectral")) == (
        [own, own],
        [of_another_method],
        [],
    )
    assert PoolQuestion.from_text(found.to_text()) == found
