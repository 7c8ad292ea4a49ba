"""The presets that tuned models compare."""

from __future__ import annotations

import dataclasses

import pytest

from service.transfer.candidates import TunedTrial
from service.transfer.pooled import PoolMember
from service.transfer.promise import PresetPromise, compared_presets
from service.transfer.situation import Situation
from trainers.identity.values import ModelShape, ParameterShape


def situation(*, width: int = 64, workload: str = "mine") -> Situation:
    shape = ModelShape((ParameterShape("linear", (width, width), 4),))
    return Situation.of(shape, batch_size=64, num_steps=500, workload=workload)


NEAR, FAR = situation(), situation(width=64 * 2**4, workload="other")


def tuned(of: Situation, preset_name: str, *values: float | None, name: str = "") -> PoolMember:
    trials = tuple(TunedTrial(value, {"lr": 0.01}) for value in values)
    return PoolMember(name or f"{of.features.width:g} wide", preset_name, of, trials)


def turned(member: PoolMember) -> PoolMember:
    """The same results of an objective that is maximised."""
    trials = tuple(
        dataclasses.replace(one, value=None if one.value is None else 10 - one.value) for one in member.trials
    )
    return dataclasses.replace(member, is_minimised=False, trials=trials)


MEMBERS = [tuned(NEAR, "soap", 0.5, 0.9), tuned(NEAR, "kl", 0.4, 1.2), tuned(NEAR, "shampoo", 0.6, 0.6)]
OPPOSITE = [tuned(FAR, "soap", 0.1, 0.9), tuned(FAR, "kl", 0.4, 1.2), tuned(FAR, "shampoo", 0.6, 0.6)]


def order(members: list[PoolMember], target: Situation = NEAR) -> list[str]:
    found = compared_presets(members, target)
    assert found is not None
    return [one.preset for one in found.presets]


def test_the_preset_whose_best_trials_were_the_best_comes_first_with_the_others_losses_over_its_own() -> None:
    found = compared_presets(MEMBERS, NEAR)
    assert found is not None
    assert [one.preset for one in found.presets] == ["kl", "soap", "shampoo"]
    assert [one.loss_ratio for one in found.presets] == [pytest.approx(ratio) for ratio in (1.0, 1.25, 1.5)]
    assert (found.num_models, found.octaves) == (1, 0.0)


def test_nearer_models_count_more() -> None:
    assert order([*MEMBERS, *OPPOSITE]) == ["kl", "soap", "shampoo"]
    assert order([*MEMBERS, *OPPOSITE], FAR) == ["soap", "kl", "shampoo"]
    found = compared_presets(OPPOSITE, NEAR)
    assert found is not None
    assert found.octaves > 4


def test_a_model_that_was_tuned_with_one_preset_compares_nothing() -> None:
    alone = tuned(situation(width=128), "soap", 0.1, 2.0)
    assert compared_presets([*MEMBERS, alone], NEAR) == compared_presets(MEMBERS, NEAR)
    assert compared_presets([MEMBERS[0], alone], NEAR) is None
    assert compared_presets([], NEAR) is None


def test_a_model_without_one_of_the_presets_takes_nothing_from_it_and_gives_nothing() -> None:
    """The easier model was not tuned with shampoo, whose losses would be twice kl's there, too."""
    easier = [tuned(NEAR, "soap", 0.0125, name="easier"), tuned(NEAR, "kl", 0.01, name="easier")]
    found = compared_presets([*MEMBERS, *easier], NEAR)
    assert found is not None
    assert found.num_models == 2
    assert [one.loss_ratio for one in found.presets] == [pytest.approx(ratio) for ratio in (1.0, 1.25, 1.5)]


def test_what_is_maximised_has_an_order_and_no_losses() -> None:
    found = compared_presets([turned(one) for one in MEMBERS], NEAR)
    assert found is not None
    assert list(found.presets) == [PresetPromise(name, None) for name in ("kl", "soap", "shampoo")]
    both = compared_presets([*(turned(one) for one in MEMBERS), *OPPOSITE], NEAR)
    assert both is not None
    assert {one.preset: one.loss_ratio for one in both.presets}["shampoo"] == pytest.approx(0.6 / 0.4)  # of the losses


@pytest.mark.parametrize("none", [(), (None, None)])
def test_a_preset_whose_trials_all_diverged_is_as_bad_as_the_worst_trial(none: tuple[float | None, ...]) -> None:
    found = compared_presets([tuned(NEAR, "spectral", *none), *MEMBERS], NEAR)
    assert found is not None
    assert found.presets[-1].preset == "spectral"
    assert found.presets[-1].loss_ratio == pytest.approx(3.0)
    nothing = compared_presets([tuned(NEAR, "soap", None), tuned(NEAR, "kl", None)], NEAR)
    assert nothing is None
