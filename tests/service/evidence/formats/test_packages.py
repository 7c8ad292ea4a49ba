"""Formats for other packages take the steps that ours takes, but for what is said: against the package where
the tests install it, else against a float64 transcription of its recurrence (`tests.support.service.packages`).

Gradients are given, the same to both whatever the weights are, so that a difference of one parameter stays its own.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from service.evidence.formats.family import family_of
from service.evidence.formats.written import Format, written
from service.evidence.parameter_groups import OwnSettings
from shampoo import Shampoo
from shampoo.hyperparameters import DEFAULT_REFRESH_PERIOD
from tests.support.service.confirmed import recommendation_with
from tests.support.service.packages import distributed_shampoo, scalable_shampoo
from trainers.workload.description import ParameterRule

SHAPE_SENTENCE = "sides longer than"
NUM_STEPS = 12  # of `recommendation_with`
SHAPES = {"matrix": (6, 5), "tall": (6, 3), "vector": (5,)}
EXACT = 1e-7
"""Of the largest change of a weight: both compute in float64."""
IN_BFLOAT16 = 0.03
"""Of the length of the steps: five products in bfloat16, whose rounding is 0.4%."""

PLAIN = {"stagger_refresh": False, "epsilon_type": "absolute"}
META: dict[str, dict[str, Any]] = {
    "adam": {**PLAIN, "epsilon": 1e-3, "precondition_frequency": 1, "weight_decay": 0.3, "betas": [0.8, 0.95]},
    "look ahead": {**PLAIN, "epsilon": 1e-3, "precondition_frequency": 1, "beta3": 0.81, "grafting_beta2": 0.9},
    "nesterov": {
        **PLAIN, "epsilon": 1e-2, "precondition_frequency": 3, "start_preconditioning_step": 3, "grafting": "sgd",
        "betas": [0.0, 0.9], "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "weight_decay_type": "l2",
    },
    "pseudo-inverse": {
        **PLAIN, "epsilon_type": "relative", "epsilon": 1e-3, "pseudo_inverse": True, "precondition_frequency": 1,
        "grafting": "rmsprop", "weight_decay": 0.2, "weight_decay_type": "independent",
    },
    "sums": {**PLAIN, "epsilon": 1e-2, "precondition_frequency": 1, "betas": [0.9, 1.0], "grafting": "adagrad"},
    "no grafting": {
        **PLAIN, "epsilon": 1e-2, "precondition_frequency": 2, "start_preconditioning_step": 4, "grafting": "none",
        "exponent_override": 0.4, "max_preconditioner_dim": 3,
    },
    "spectral": {"preconditioner": "spectral", "weight_decay": 0.1},
    "spectral, original": {"preconditioner": "spectral", "adjust_lr_fn": "original", "beta3": 0.81},
    "none": {"preconditioner": "none", "betas": [0.9, 0.95]},
}  # fmt: skip


def gradients(scale: float = 1.0) -> list[dict[str, Tensor]]:
    """Of each step and parameter: a part that stays, and half as much noise, larger in some rows than in others."""
    generator = torch.Generator().manual_seed(5)

    def drawn() -> dict[str, Tensor]:
        return {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in SHAPES.items()}

    lasting, found = drawn(), []
    for _ in range(NUM_STEPS):
        of_step = {name: lasting[name] + 0.5 * noise for name, noise in drawn().items()}
        rows = {name: torch.linspace(0.2, 2, len(G)).view(-1, *[1] * (G.ndim - 1)) for name, G in of_step.items()}
        found.append({name: scale * rows[name] * G for name, G in of_step.items()})
    return found


def model(dtype: torch.dtype = torch.float64) -> nn.ParameterDict:
    generator = torch.Generator().manual_seed(3)
    return nn.ParameterDict(
        {
            name: nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype))
            for name, shape in SHAPES.items()
        }
    )


def changes(python: str, given: list[dict[str, Tensor]], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The change of each parameter after the pasted code has trained with these gradients."""
    trained, start = model(dtype), dict(model(dtype).named_parameters())
    pasted: dict[str, Any] = {"model": trained}
    exec(compile(python, "pasted", "exec"), pasted)
    for of_step in given:
        pasted["training_step"](sum((p * of_step[name]).sum() for name, p in trained.named_parameters()))
    return {name: (p - start[name]).detach().double() for name, p in trained.named_parameters()}


def both(
    config: dict[str, Any], form: Format, optimizer: str = "shampoo", *, dtype: torch.dtype = torch.float64
) -> tuple[list[str], dict[str, Tensor], dict[str, Tensor]]:
    """The things that the format cannot say, and the changes with our Python and with its."""
    recommended = recommendation_with(config, optimizer)
    ours, theirs = written(recommended, Format.PYTHON), written(recommended, form)
    assert ours.text is not None
    assert theirs.text is not None
    for sentence in theirs.cannot_say:
        assert sentence[:40] in theirs.text
    return theirs.cannot_say, changes(ours.text, gradients()), changes(theirs.text, gradients(), dtype)


def difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / ours.norm())


def beside_shapes(cannot_say: list[str]) -> list[str]:
    return [one for one in cannot_say if not one.startswith(SHAPE_SENTENCE)]


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transcriptions in the places of packages that are not installed."""
    optax, optax_shampoo = ModuleType("optax"), ModuleType("scalable_shampoo.optax")
    optax.__dict__.update(chain=scalable_shampoo.chain, clip_by_global_norm=scalable_shampoo.clip_by_global_norm)
    monkeypatch.setitem(sys.modules, "distributed_shampoo", distributed_shampoo)
    monkeypatch.setitem(sys.modules, "optax", optax)
    monkeypatch.setitem(sys.modules, "scalable_shampoo", ModuleType("scalable_shampoo"))
    monkeypatch.setitem(sys.modules, "scalable_shampoo.optax", optax_shampoo)
    monkeypatch.setitem(sys.modules, "scalable_shampoo.optax.distributed_shampoo", scalable_shampoo)
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    monkeypatch.setitem(sys.modules, "jax.numpy", np)  # which has all that a schedule needs


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """heavyball, which otherwise compiles for minutes."""
    import heavyball

    monkeypatch.setattr(heavyball.utils, "compile_mode", None)


heavyballs_warning = pytest.mark.filterwarnings("ignore:Learning rate changed between steps")
"""It calls a schedule experimental where one optimizer has all parameters, as here."""


@pytest.mark.slow
@pytest.mark.parametrize("case", META)
def test_distributed_shampoo_takes_the_same_steps(case: str) -> None:
    cannot_say, ours, theirs = both(META[case], Format.DISTRIBUTED_SHAMPOO)
    assert beside_shapes(cannot_say) == []
    for name, change in ours.items():
        assert difference(change, theirs[name]) < EXACT, name


@pytest.mark.slow
def test_distributed_shampoo_says_what_of_the_defaults_it_cannot() -> None:
    cannot_say, ours, theirs = both({}, Format.DISTRIBUTED_SHAMPOO)
    text = " ".join(cannot_say)
    for word in ("largest eigenvalue", "stagger_refresh", "first refresh at step 1"):
        assert word in text
    assert difference(ours["vector"], theirs["vector"]) < EXACT
    # Its eigenbasis is ours until the second refresh.
    once = {"preconditioner": "soap", "start_preconditioning_step": 20, "precondition_frequency": 20, "epsilon": 1e-6}
    assert "squared gradients do not follow" in " ".join(
        written(recommendation_with(once), Format.DISTRIBUTED_SHAMPOO).cannot_say
    )


@pytest.mark.slow
def test_dash_takes_the_same_steps_with_its_matrices() -> None:
    config = {
        **PLAIN, "epsilon": 1e-2, "precondition_frequency": 2, "start_preconditioning_step": 2, "weight_decay": 0.2,
        "use_bias_correction": False, "grafting_beta2": 0.9, "momentum": 0.6, "nesterov": True,
        "betas": [0.0, 0.999],
    }  # fmt: skip
    cannot_say, ours, theirs = both(config, Format.PYTORCH_OPTIMIZER)
    assert all("vectors" in one for one in beside_shapes(cannot_say))
    for name in ("matrix", "tall"):
        assert difference(ours[name], theirs[name]) < EXACT, name
    corrected = {**config, "use_bias_correction": True, "momentum": 0.0, "nesterov": False, "epsilon": 1e-9}
    cannot_say, ours, theirs = both(corrected, Format.PYTORCH_OPTIMIZER)
    assert [one[:27] for one in beside_shapes(cannot_say)] == ["the bias correction of the "]
    assert difference(ours["vector"], theirs["vector"]) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("graft", ["sgd", "adagrad", "rmsprop"])
def test_scalable_shampoo_takes_the_same_steps_in_jax(graft: str) -> None:
    config = {
        "betas": [0.0, 0.99], "momentum": 0.9, "nesterov": graft != "sgd", "grafting": graft, "epsilon": 1e-4,
        "stagger_refresh": False, "precondition_frequency": 2, "weight_decay": 0.0,
    }  # fmt: skip
    assert_scalable(config, ["the factors begin at epsil"])


@pytest.mark.slow
def test_scalable_shampoo_decays_as_ours_where_nothing_else_is_in_the_step() -> None:
    config = {
        "betas": [0.0, 0.99],
        "grafting": "sgd",
        "epsilon": 1e-4,
        "precondition_frequency": 1,
        "weight_decay": 0.5,
    }
    assert_scalable(config, ["the factors begin at epsil"])


def assert_scalable(config: dict[str, Any], unsaid: list[str]) -> None:
    recommended = recommendation_with(config)
    recommended = recommended.model_copy(update={"training": {**recommended.training, "gradient_clip_norm": 4000.0}})
    theirs = written(recommended, Format.SCALABLE_SHAMPOO)
    assert theirs.text is not None
    assert [one[:26] for one in beside_shapes(theirs.cannot_say)] == unsaid
    given = gradients(100.0)  # beside which what the factors begin at is nothing
    ours = changes(written(recommended, Format.PYTHON).text or "", given)
    pasted: dict[str, Any] = {}
    exec(compile(theirs.text, "pasted", "exec"), pasted)
    params = {name: p.detach().clone() for name, p in model().named_parameters()}
    for of_step in given:
        updates = pasted["optimizer"].update([of_step[name] for name in params], list(params.values()))
        params = {name: p + update for (name, p), update in zip(params.items(), updates, strict=True)}
    for name, start in model().named_parameters():
        assert difference(ours[name], params[name] - start.detach()) < 1e-4, name


@pytest.mark.parametrize("form", [Format.TORCH_MUON, Format.PYTORCH_OPTIMIZER])
@pytest.mark.parametrize("beta3", [None, 0.81])
@pytest.mark.slow
def test_muon_takes_the_same_steps_up_to_bfloat16(form: Format, beta3: float | None) -> None:
    config = {"preconditioner": "spectral", "beta3": beta3, "weight_decay": 0.1, "product_dtype": "bfloat16"}
    cannot_say, ours, theirs = both(config, form)
    assert ("beta3=0.81 of vectors" in " ".join(cannot_say)) == (beta3 is not None)
    for name in ("matrix", "tall", *(["vector"] if beta3 is None else [])):
        assert difference(ours[name], theirs[name]) < (IN_BFLOAT16 if name != "vector" else EXACT), name


@pytest.mark.parametrize(("member", "form"), [
    ("shampoo", Format.PYTORCH_OPTIMIZER), ("spectral", Format.PYTORCH_OPTIMIZER), ("spectral", Format.TORCH_MUON),
])  # fmt: skip
def test_sums_of_squares_become_averages_where_a_package_has_only_these(member: str, form: Format) -> None:
    grafting = "adagrad" if member == "shampoo" else None
    cannot_say, _, theirs = both({"preconditioner": member, "betas": [0.9, 1.0], "grafting": grafting}, form)
    assert "grafting='adagrad': vectors" in " ".join(cannot_say)
    assert all(change.isfinite().all() for change in theirs.values())


def test_muon_with_adamw_is_written_without_our_packages_optimizer() -> None:
    config = {"momentum": 0.9, "adamw_lr_ratio": 0.5, "weight_decay": 0.1}
    cannot_say, ours, theirs = both(config, Format.TORCH_MUON, optimizer="muon")
    assert cannot_say == []
    assert all(torch.equal(ours[name], theirs[name]) for name in SHAPES)


@pytest.mark.slow
@heavyballs_warning
@pytest.mark.usefixtures("uncompiled")
def test_soap_of_others_steps_in_the_direction_of_ours_and_both_of_theirs_are_one() -> None:
    config = {"preconditioner": "soap", "solver": "qr", "precondition_frequency": 1, "betas": [0.8, 0.9]}
    cannot_say, ours, theirs = both(config, Format.PYTORCH_OPTIMIZER)
    unsaid_of_heavyball, _, of_heavyball = both(config, Format.HEAVYBALL, dtype=torch.float32)  # it has no other
    for sentences in (cannot_say, unsaid_of_heavyball):
        assert "the first step: it moves nothing there" in " ".join(sentences)
        assert "squared gradients" in " ".join(sentences)
    for name, change in ours.items():
        # Of twelve steps, the first among them that moves nothing there, while the basis changes most.
        assert torch.cosine_similarity(change.flatten(), theirs[name].flatten(), dim=0) > 0.75, name
        if name != "tall":  # whose larger factor has a null space, in which any basis is as good
            assert difference(theirs[name], of_heavyball[name]) < 0.01, name


@heavyballs_warning
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("adjust_lr_fn", ["match_rms_adamw", "original"])
@pytest.mark.parametrize("beta3", [None, 0.81])
def test_muon_of_heavyball_steps_as_far_as_ours_in_the_same_direction(
    adjust_lr_fn: str, beta3: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPES, "wide", (3, 7))
    monkeypatch.setitem(SHAPES, "kernel", (4, 3, 2, 2))  # with sides that are merged otherwise: in another direction
    config = {"preconditioner": "spectral", "adjust_lr_fn": adjust_lr_fn, "beta3": beta3}
    cannot_say, ours, theirs = both(config, Format.HEAVYBALL)
    unsaid = ["the polynomial", *([] if beta3 is None else ["beta3=0.81 of "])]
    assert [one[:14] for one in beside_shapes(cannot_say)] == unsaid
    for name in ("matrix", "tall", "wide"):
        assert torch.cosine_similarity(ours[name].flatten(), theirs[name].flatten(), dim=0) > 0.95, name
        assert 0.75 < theirs[name].norm() / ours[name].norm() < 1.35, name
    if adjust_lr_fn == "match_rms_adamw":
        assert 0.75 < theirs["kernel"].norm() / ours["kernel"].norm() < 1.35
    if beta3 is None:
        assert difference(ours["vector"], theirs["vector"]) < EXACT


@heavyballs_warning
@pytest.mark.usefixtures("uncompiled")
def test_muon_of_heavyball_decays_as_ours_in_groups_with_settings_of_their_own_too() -> None:
    groups = [OwnSettings("tall ones", {"lr": 0.1, "weight_decay": 0.7}, [ParameterRule(name_parts=("tall",))])]
    recommended = recommendation_with({"preconditioner": "spectral", "weight_decay": 0.4})
    recommended = recommended.model_copy(update={"parameter_groups": groups})
    ours, theirs = (written(recommended, form).text for form in (Format.PYTHON, Format.HEAVYBALL))
    expected, found = changes(ours or "", gradients(0.0)), changes(theirs or "", gradients(0.0))
    for name, change in expected.items():
        assert difference(change, found[name]) < EXACT, name


@pytest.mark.parametrize(
    ("config", "form"),
    [
        ({"preconditioner": "kl"}, Format.DISTRIBUTED_SHAMPOO),
        ({}, Format.HEAVYBALL),
        ({"preconditioner": "kl"}, Format.HEAVYBALL),
        ({"preconditioner": "kl"}, Format.PYTORCH_OPTIMIZER),
        ({"preconditioner": "soap"}, Format.SCALABLE_SHAMPOO),
        ({}, Format.TORCH_MUON),
    ],
)
def test_what_a_package_has_nothing_of_is_not_written_for_it(config: dict[str, Any], form: Format) -> None:
    found = written(recommendation_with(config), form)
    assert found.text is None
    assert len(found.cannot_say) == 1


def test_groups_of_parameters_are_those_of_the_trial() -> None:
    config = {**META["adam"], "weight_decay": 0.4}
    recommended = recommendation_with(config)
    groups = [
        OwnSettings("tall ones", {"preconditioner": "none"}, [ParameterRule(name_parts=("tall",))]),
        OwnSettings("vectors", {"weight_decay": 0.0}, [ParameterRule(max_dims=1)]),
    ]
    recommended = recommended.model_copy(update={"parameter_groups": groups})
    ours, theirs = written(recommended, Format.PYTHON), written(recommended, Format.DISTRIBUTED_SHAMPOO)
    assert beside_shapes(theirs.cannot_say) == []
    expected, found = changes(ours.text or "", gradients()), changes(theirs.text or "", gradients())
    for name, change in expected.items():
        assert difference(change, found[name]) < EXACT, name


@pytest.mark.parametrize("member", list(DEFAULT_REFRESH_PERIOD))
@pytest.mark.parametrize("state_dtype", ["float32", "int8"])
def test_defaults_are_those_of_the_optimizer(member: str, state_dtype: str) -> None:
    if member in ("spectral", "none") and state_dtype != "float32":
        return
    config: dict[str, Any] = {"preconditioner": member, "state_dtype": state_dtype}
    f = family_of(config)
    optimizer = Shampoo([nn.Parameter(torch.ones(2, 2))], **config)
    h = optimizer._hyperparameters(0)
    assert (f.period, f.start, f.statistics_period) == (h.refresh_period, h.first_refresh, h.statistics_period)
    assert (f.grafting, f.plain_method, f.grafting_beta2) == (h.grafting_method, h.plain_method, h.second_moment_beta)
    assert (f.betas, f.beta3, f.shampoo_beta) == (h.betas, h.betas[0], h.factor_beta)
