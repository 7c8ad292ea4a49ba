"""The configs that are named for a model that was never tuned, and their order."""

from __future__ import annotations

import dataclasses
import math

import pytest

from search_spaces import preset
from service.evidence.formats.written import Format, written_of
from service.evidence.parameter_groups import OwnSettings
from service.evidence.types import EvidenceStatus
from service.transfer.adapters import LEARNING_RATES
from service.transfer.candidates import Source, SourceKind, TransferCandidate, member_of, published, shipped_members
from service.transfer.known import known_of
from service.transfer.ranking import FARTHEST, is_near, rank, spread_of_lr
from service.transfer.rules import TunedConfig
from service.transfer.situation import FAMILY_MEMBERS, Distance, FamilyMember, Situation, distance
from service.transfer.taken_away import AskedModel, taken_away
from service.transfer.words import UntunedAnswer, header_of
from tests.support.service.tuned import adapters, situation, stored
from trainers.identity.values import ModelShape, ParameterShape
from trainers.workload.description import ParameterRule


def test_an_empty_store_answers_with_what_is_published_in_the_order_that_hits_soonest() -> None:
    found = rank(situation(width=32_768, workload=None), [], num_configs=5)
    assert [one.origin.source.name.split(",")[1].strip()[:7] for one in found] == [
        f"point {number}" for number in (5, 1, 4, 3, 2)
    ]
    assert all(one.distance is None and not one.intervals and not one.changes for one in found)
    assert found[4].config.schedule["horizon"] == 0.6


def test_an_answer_names_what_its_configs_are_from_and_nothing_else() -> None:
    far = UntunedAnswer(0, rank(situation(width=32_768, workload=None), [], num_configs=5))
    assert "this rests on the points of AlgoPerf's winning Shampoo submission. Of the table " in far.says
    assert far.says.endswith("nothing here was moved to this one.")
    assert "scaling rules" not in far.says
    near = UntunedAnswer(0, rank(shipped_members()[0].situation, [], num_configs=5))
    assert "this rests on the table that comes with shampoo-tuner (small models, few trials each)" in near.says
    assert near.says.endswith("and the scaling rules.")
    for one in (far, near):
        assert "low-rank" not in one.says
        assert dataclasses.replace(one, trains_adapters=True).says.endswith("of which all weights are trained.")


def test_a_shipped_models_own_neighbour_comes_first() -> None:
    member = shipped_members()[0]
    wide = dataclasses.replace(
        member.situation, features=dataclasses.replace(member.situation.features, width=8 * 23.8)
    )
    first = rank(wide, [], num_configs=5)[0]
    assert first.origin.source.kind is SourceKind.SHIPPED
    assert first.distance is not None
    assert first.distance.workload == 0


def test_the_nearest_stored_models_come_first_then_other_rates_around_the_best_guess() -> None:
    found = rank(situation(), [stored(1e-3, width=512), stored(1e-2), stored(3e-3, width=128)], num_configs=5)
    assert [one.config.arguments["lr"] for one in found] == pytest.approx([1e-2, 6e-3, 8e-3, 5e-3, 2e-2])
    assert [one.lr_factor for one in found] == [1, 1, 1, 0.5, 2]
    lows = [one.intervals[0].low for one in found[:3]]
    assert found[0].intervals[0].name == "lr"
    assert lows[0] / 1e-2 > lows[1] / 6e-3 > lows[2] / 8e-3  # the farther, the wider


@pytest.mark.parametrize("width", [64, 512])
def test_a_varied_learning_rate_is_the_one_that_the_header_ends_with(width: int) -> None:
    varied = [one for one in rank(situation(), [stored(8e-3, width=width)], num_configs=8) if one.lr_factor != 1]
    assert [one.lr_factor for one in varied] == [0.5, 2]
    for one in varied:
        (of_lr,) = [change for change in one.changes if change.name == "lr"]
        assert (of_lr.before, of_lr.after) == (8e-3, one.config.arguments["lr"])
        (told,) = [line for line in header_of(one) if line.startswith("lr: ") and "->" in line]
        assert told.startswith(f"lr: 0.008 -> {one.config.arguments['lr']:.4g} (")
        assert told.endswith(f"× {one.lr_factor:g} on purpose)")


def test_models_of_one_workload_say_together_what_decay_to_begin_with() -> None:
    found = rank(situation(), [stored(2e-3, decay=1e-2, width=32), stored(2e-3, decay=5.0, width=128)], num_configs=3)
    near = next(one for one in found if one.origin.config.arguments["weight_decay"] == 1e-2)
    expected = math.sqrt(1e-2 * 5.0)  # as the one is an octave narrower, and the other one wider
    assert [one.config.arguments["weight_decay"] for one in found] == pytest.approx([expected] * 3, rel=1e-3)
    (change,) = [one for one in near.changes if one.name == "weight_decay"]
    assert (change.before, change.after) == (1e-2, near.config.arguments["weight_decay"])
    assert change.reason == f"drawn to the decay of another tuned model of its data: × {expected / 1e-2:.3g}"
    (of_decay,) = [one for one in near.intervals if one.name == "weight_decay"]
    assert of_decay.low < expected < of_decay.high


def test_a_decay_of_a_training_of_as_many_examples_says_more_than_a_nearer_ones() -> None:
    """As both go over their data as often; a distance counts an octave of steps as half of one of width."""
    short = dataclasses.replace(stored(1e-2, decay=1e-3), situation=situation(num_steps=500 // 8))
    wide = stored(1e-2, decay=1.0, width=512)
    found = rank(situation(), [short, wide], num_configs=1)[0]
    assert found.origin is short
    assert found.config.arguments["weight_decay"] > math.sqrt(1e-3)


def test_of_two_decays_the_nearer_models_says_more() -> None:
    near, far = stored(1e-2, decay=0.1, width=128), stored(1e-2, decay=1.0, width=1024)
    found = rank(situation(), [near, far], num_configs=2)[0].config.arguments["weight_decay"]
    alone = [rank(situation(), [one], num_configs=1)[0].config.arguments["weight_decay"] for one in (near, far)]
    assert alone[0] < found < math.sqrt(alone[0] * alone[1])


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(stored(1e-2, decay=1.0), situation=situation(width=128, workload="other")),
        dataclasses.replace(stored(1e-2, decay=1.0), situation=situation(width=128, workload=None)),
        stored(1e-2, EvidenceStatus.REFUTED, decay=1.0, width=128),
        dataclasses.replace(
            stored(1e-2, width=128),
            config=TunedConfig("shampoo", {"lr": 1e-2, "weight_decay": 1.0, "weight_decay_type": "independent"}, {}),
        ),
        dataclasses.replace(
            stored(1e-2, width=128),
            config=TunedConfig("shampoo", {"lr": 1e-2, "weight_decay": 1.0, "weight_decay_type": "l2"}, {}),
        ),
        dataclasses.replace(
            stored(1e-2, width=128),
            config=TunedConfig("shampoo", {"lr": 1e-2, "weight_decay": 1.0, "preconditioner": "soap"}, {}),
        ),
        stored(1e-2, width=128),
    ],
    ids=["other data", "data not known", "refuted", "independent", "a penalty", "other steps", "none"],
)
def test_what_says_nothing_of_the_decay_changes_none(other: TransferCandidate) -> None:
    tuned = stored(1e-2, decay=1e-2, width=32)
    alone, beside = (
        next(one for one in rank(situation(), candidates, num_configs=4) if one.origin is tuned)
        for candidates in ([tuned], [tuned, other])
    )
    assert alone.config == beside.config


def test_a_model_that_was_tuned_itself_keeps_its_own_decay() -> None:
    found = rank(situation(), [stored(1e-2, decay=1e-2), stored(1e-2, decay=5.0, width=128)], num_configs=2)
    assert found[0].config.arguments["weight_decay"] == 1e-2


def test_what_a_stored_model_too_far_away_was_tuned_with_comes_after_what_is_published() -> None:
    """As a convnet's is no guess for a language model."""
    far, near = stored(1e-2, kind="convolution"), stored(1e-3, width=128)  # type: ignore[arg-type]
    asked = situation("embedding", workload=None)
    assert distance(far.situation, asked).total > FARTHEST  # type: ignore[arg-type]
    few, many = rank(asked, [far], num_configs=5), rank(asked, [far], num_configs=100)
    assert {one.origin.source.kind for one in few} == {SourceKind.PUBLISHED}
    assert SourceKind.STORE in {one.origin.source.kind for one in many}
    answer = UntunedAnswer(1, few)
    assert not answer.rests_on_store
    assert answer.says.startswith("The one tuned here lies too far from this model to say anything: this rests on ")
    assert UntunedAnswer(1, rank(situation(), [near], num_configs=5)).rests_on_store


def test_why_a_near_model_says_nothing_is_told() -> None:
    refuted, other = stored(1e-2, EvidenceStatus.REFUTED), stored(1e-2, width=128)
    assert is_near(refuted, situation())
    (first,) = rank(shipped_members()[0].situation, [], num_configs=1)
    says = [UntunedAnswer(2, [first], near=near).says for near in ([refuted], [refuted, refuted], [refuted, other])]
    assert says[0].startswith("1 model near this one was tuned here, but new seeds refuted its config: this rests on ")
    assert says[1].startswith("2 models near this one were tuned here, but new seeds refuted their configs: ")
    assert says[2].startswith("2 models near this one were tuned here, but these configs come first: ")


def test_tuned_models_of_another_member_than_was_asked_for_are_no_grounds() -> None:
    of_kl = stored(1e-3, width=128)
    of_kl = dataclasses.replace(
        of_kl, config=dataclasses.replace(of_kl.config, arguments={**of_kl.config.arguments, "preconditioner": "kl"})
    )
    refuted = dataclasses.replace(of_kl, source=dataclasses.replace(of_kl.source, status=EvidenceStatus.REFUTED))

    def says(*tuned: TransferCandidate) -> str:
        found = rank(situation(), tuned, num_configs=5, member="kl")
        return UntunedAnswer(len(tuned), found, near=tuned, member="kl").says

    of_another = says(stored(1e-2))
    assert of_another.startswith("1 model near this one was tuned here, but its config is not of 'kl': this rests on ")
    of_others = says(stored(1e-2), stored(1e-2, width=128))
    assert of_others.startswith("2 models near this one were tuned here, but none of their configs is of 'kl': ")
    assert says(stored(1e-2), of_kl).startswith("This rests on 1 tuned model of this service, and beside it on ")
    (first,) = rank(shipped_members()[0].situation, [], num_configs=1, member="kl")
    of_refuted = UntunedAnswer(2, [first], near=[stored(1e-2), refuted], member="kl").says
    assert of_refuted.startswith("1 model near this one was tuned here with 'kl', but new seeds refuted its config: ")


def test_a_config_is_taken_away_with_the_settings_that_some_parameters_had_of_their_own() -> None:
    rule = ParameterRule(module_types=("Embedding",))
    own = [OwnSettings("tables of embeddings", {"preconditioner": "none"}, [rule])]
    tuned = dataclasses.replace(stored(1e-2), parameter_groups=own)
    (found, *_) = rank(situation(), [tuned], num_configs=3)
    schedule = {"decay": "cosine", "warmup_fraction": 0.05}
    training = {"num_steps": 500, "batch_size": 64, "gradient_clip_norm": None}
    taken = taken_away(found, AskedModel("my:Net", None, None), schedule=schedule, training=training)
    python, theirs = (written_of(taken, form).text or "" for form in (Format.PYTHON, Format.PYTORCH_OPTIMIZER))
    assert "def parameter_groups(model):" in python
    assert "optimizer = Shampoo(\n    parameter_groups(model),\n" in python
    assert "def parameter_groups(model):" in theirs


def test_what_new_seeds_refuted_comes_last() -> None:
    found = rank(situation(), [stored(1e-2, EvidenceStatus.REFUTED), stored(1e-3, width=512)], num_configs=2)
    assert found[0].config.arguments["lr"] == pytest.approx(8e-3)


def test_an_optimizer_of_adapters_is_named_for_models_that_have_some() -> None:
    adapted = Situation.of(
        ModelShape((ParameterShape("adapter", (4, 64), 4), ParameterShape("linear", (64, 64), 4))),
        batch_size=64,
        num_steps=500,
        workload="mine",
    )
    assert adapted.features.width == situation().features.width
    assert adapted.features.depth == 4
    tuned = TransferCandidate(TunedConfig("lora-rite", {"lr": 1e-2}, {}), Source(SourceKind.STORE, "mine"), adapted)
    with_it, without = (rank(target, [tuned, stored(1e-3)], num_configs=5) for target in (adapted, situation()))
    assert with_it[0].config == tuned.config
    assert {one.config.optimizer for one in without} == {"shampoo"}
    # What trained all weights lies far from what trains adapters, however many of the weights these are.
    assert distance(adapted, situation()).kinds == 4


def test_without_a_tuned_one_adapters_begin_with_what_was_measured_on_those_of_a_small_model() -> None:
    small, large = (rank(adapters(width), [stored(1e-2)], num_configs=6) for width in (64, 512))
    for found in (small, large):
        assert [one.config.optimizer for one in found[:4]] == ["shampoo"] * 3 + ["lora-rite"]
        assert [one.lr_factor for one in found[:4]] == [1, 0.5, 2, 1]
        assert {one.origin.source.kind for one in found[:4]} == {SourceKind.ADAPTERS}
        assert all(one.config.arguments["weight_decay"] == 0 for one in found[:4])
        assert {one.origin.source.kind for one in found[4:]} == {SourceKind.PUBLISHED}  # not what trained all weights
    assert [one.config.arguments["lr"] for one in (small[0], small[3])] == list(LEARNING_RATES.values())
    factors = [large[place].config.arguments["lr"] / small[place].config.arguments["lr"] for place in (0, 3)]
    assert factors == pytest.approx([1 / 8, 8**-0.5], rel=1e-3)
    widths = [one.intervals[0].high / one.intervals[0].low for one in (small[0], large[0])]
    assert widths[0] < widths[1]
    says = UntunedAnswer(1, large, trains_adapters=True).says
    assert "measured on low-rank adapters of a small GPT-2" in says
    assert "from those of the small GPT-2 was tuned for models of which all weights are trained" in says
    assert "of a small GPT-2, 3.6 octaves from this model." in header_of(large[0])[1]


def test_spreads_grow_with_the_distance() -> None:
    near, wide, long, deep = (Distance(*of, 0, 0) for of in ((0, 0, 0, 0), (2, 0, 0, 0), (0, 0, 0, 2), (0, 2, 0, 0)))
    assert spread_of_lr(near) < spread_of_lr(long) < spread_of_lr(wide) < spread_of_lr(deep)


def test_a_model_in_a_long_training_is_answered_by_those_that_were_tuned_in_short_ones() -> None:
    """The rule for the length holds on all families, so an octave of it counts less than one of width."""
    layers = ParameterShape("linear", (48, 64), 1), ParameterShape("linear", (48, 48), 1)
    shape = ModelShape((ParameterShape("linear", (10, 48), 1), *layers, ParameterShape("vector", (48,), 2)))
    short, long = (Situation.of(shape, batch_size=32, num_steps=num_steps) for num_steps in (500, 5000))
    first, of_long = (rank(target, [], num_configs=5)[0] for target in (short, long))
    for found in (first, of_long):
        assert found.origin.source.kind is SourceKind.SHIPPED
        assert found.origin.source.name.startswith("digits-mlp")
        assert any(change.name == "lr" for change in found.changes)
    widths = [found.intervals[0].high / found.intervals[0].low for found in (first, of_long)]
    assert widths[0] < widths[1]
    assert of_long.distance is not None
    assert f"{of_long.distance.total:.1f} octaves from this model" in header_of(of_long)[1]


def test_the_shipped_table_is_of_its_presets_and_has_a_best_trial() -> None:
    for member in shipped_members():
        space = preset(member.preset)
        for trial in member.trials:
            space.check(dict(trial.parameters))
        assert member.best.value is not None
        assert member.candidate().config.arguments["lr"] == member.best.parameters["lr"]


def test_adamws_members_of_the_shipped_table_are_no_answer_but_a_baseline_begins_with_them() -> None:
    by_preset = {name: [one for one in shipped_members() if one.preset == name] for name in ("shampoo", "adamw")}
    shampoos, adamws = by_preset.values()
    assert [one.name for one in shampoos] == [one.name for one in adamws]
    assert [len(one.trials) for one in shampoos] == [len(one.trials) for one in adamws]
    target = adamws[0].situation
    assert {one.config.optimizer for one in rank(target, [], num_configs=40)} == {"shampoo"}
    candidates = [one.candidate() for one in shipped_members()]
    for name, own in by_preset.items():
        first, *_ = known_of(preset(name), candidates, target)
        assert first.parameters == pytest.approx(own[0].best.parameters, rel=1e-3)
        assert first.distance == 0  # as an answer for a model that was never tuned has it, though it counts as farther


@pytest.mark.parametrize("member", FAMILY_MEMBERS)
def test_configs_of_one_member_of_the_family_are_of_it_alone(member: FamilyMember) -> None:
    target = shipped_members()[0].situation
    own = dataclasses.replace(stored(3e-3), situation=dataclasses.replace(target, batch_size=64))
    found = rank(target, [own], num_configs=40, member=member)
    assert {member_of(one.config) for one in found} == {member}
    kinds = {one.origin.source.kind for one in found}
    is_shampoo = member == "shampoo"
    assert (SourceKind.PUBLISHED in kinds, SourceKind.STORE in kinds) == (is_shampoo, is_shampoo)
    assert SourceKind.SHIPPED in kinds
    assert {member_of(one.config) for one in rank(target, [own], num_configs=40)} == {*FAMILY_MEMBERS}


def test_a_search_of_the_family_is_told_of_the_nearest_models_best_member_first() -> None:
    target = shipped_members()[0].situation
    found = known_of(preset("family"), [one.candidate() for one in shipped_members()], target)
    own = {one.preset: one.best.value for one in shipped_members() if one.situation == target and one.preset != "adamw"}
    best_first = sorted(own, key=lambda name: own[name] or math.inf)
    assert [one.parameters["preconditioner"] for one in found] == best_first[: len(found)]
    for name in FAMILY_MEMBERS:
        alone = known_of(preset(name), [one.candidate() for one in shipped_members()], target)
        assert alone[0].source.value == own[name]


def test_a_search_is_told_of_a_stored_model_before_a_shipped_one_that_is_not_half_an_octave_nearer() -> None:
    member = next(one for one in shipped_members() if one.preset == "adamw")
    batch_size = round(member.situation.batch_size * 1.5)  # 0.3 octaves, an octave of it counted half
    near = dataclasses.replace(
        member.candidate(), situation=dataclasses.replace(member.situation, batch_size=batch_size)
    )
    near = dataclasses.replace(near, source=Source(SourceKind.STORE, "mine"))
    found = known_of(preset("adamw"), [member.candidate(), near], member.situation)
    assert [one.source.kind for one in found] == [SourceKind.STORE, SourceKind.SHIPPED]
    assert found[0].distance > found[1].distance


def test_points_are_whole() -> None:
    for candidate in published():
        assert {
            "lr",
            "betas",
            "weight_decay",
            "grafting",
            "epsilon",
            "grafting_epsilon",
            "precondition_frequency",
        } <= set(candidate.config.arguments)
        assert any("label smoothing" in remark and "dropout" in remark for remark in candidate.remarks)
