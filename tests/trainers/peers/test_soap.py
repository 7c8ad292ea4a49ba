"""SOAP of pytorch_optimizer as an optimizer of trials."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from tests.support.trainers.trials import small_trial, without_clock
from trainers.config import InvalidConfig, OptimizerConfig
from trainers.loop import train
from trainers.memory.prediction import needs_of
from trainers.peers.soap import peer_soap
from trainers.ranks.context import single_process_context

SOAP = OptimizerConfig("soap-peer", {"lr": 3e-2, "precondition_frequency": 3})


def test_without_the_package_the_message_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    with pytest.raises(InvalidConfig, match=r"soap-peer needs pytorch_optimizer.*pip install.*\[peers\]"):
        next(train(small_trial(SOAP), single_process_context()))


@pytest.mark.slow
def test_arguments_and_defaults_are_the_packages() -> None:
    theirs = inspect.signature(pytest.importorskip("pytorch_optimizer").SOAP).parameters
    for name, ours in inspect.signature(peer_soap).parameters.items():
        assert ours.default == theirs[name].default, name


@pytest.mark.slow
def test_a_trial_learns_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_optimizer")
    config = small_trial(SOAP)
    whole = list(train(config, single_process_context()))
    assert whole[-1].metrics["validation_loss"] < 0.8 * whole[0].metrics["validation_loss"]
    context = single_process_context(checkpoint_directory=tmp_path)
    stopped = train(config, context)
    next(stopped), next(stopped)
    stopped.close()
    assert without_clock(list(train(config, context))) == without_clock(whole[1:])


@pytest.mark.slow
def test_its_memory_is_predicted() -> None:
    pytest.importorskip("pytorch_optimizer")
    needs = needs_of(small_trial(SOAP))
    # Two moments of each parameter, and a factor and a basis for each side of a matrix.
    assert needs.optimizer > 2 * needs.gradients + 2 * 4 * (64**2 + 32**2 + 32**2 + 16**2 + 16**2 + 10**2) - 1
