"""The answer of all tuned models of the shipped table together, in its place among the configs."""

from __future__ import annotations

import dataclasses

import pytest

from service.evidence.types import EvidenceStatus
from service.transfer.candidates import MemberShare, SourceKind, member_of, shipped_members
from service.transfer.pooled import NotPooled, PooledAnswer
from service.transfer.ranking import is_near_shipped, rank
from service.transfer.words import UntunedAnswer, header_of
from tests.support.service.tuned import adapters, situation, stored

POOLED = PooledAnswer(
    "shampoo",
    {
        "lr": 0.005,
        "betas[0]": 0.8,
        "weight_decay": 0.5,
        "schedule.warmup_fraction": 0.03,
        "betas[1]": 0.98,
        "epsilon": 1e-7,
        "precondition_frequency": 3,
    },
    336,
    (
        MemberShare("one, 100 steps", 0.4),
        MemberShare("two", 0.3),
        MemberShare("three", 0.2),
        MemberShare("four", 0.06),
        MemberShare("five", 0.04),
    ),
)


def test_what_the_models_of_the_table_say_together_comes_before_what_the_nearest_of_them_says_alone() -> None:
    target = dataclasses.replace(shipped_members()[0].situation, num_steps=300)
    alone, found = (rank(target, [], num_configs=8, pooled=pooled) for pooled in ((), [POOLED]))
    first = found[0]
    arguments, schedule = first.config.arguments, first.config.schedule
    assert (arguments["lr"], arguments["betas"], arguments["precondition_frequency"]) == (0.005, [0.8, 0.98], 3)
    assert (arguments["grafting"], schedule) == ("adam", {"decay": "cosine", "warmup_fraction": 0.03})
    assert found[1] == alone[0]
    # Trials of short trainings hardly tell which decay is best.
    assert arguments["weight_decay"] == alone[0].config.arguments["weight_decay"]
    assert first.distance == alone[0].distance
    varied = [one for one in found if one.lr_factor != 1]
    assert [one.config.arguments["lr"] for one in varied] == [0.0025, 0.01]
    assert {one.config.arguments["precondition_frequency"] for one in varied} == {3}


def test_each_value_that_models_say_together_is_told_beside_the_nearest_ones_with_who_has_how_much_say() -> None:
    target = dataclasses.replace(shipped_members()[0].situation, num_steps=300)
    found, nearest = rank(target, [], num_configs=8, pooled=[POOLED])[:2]
    tuned = nearest.origin.config
    changes = {one.name: one for one in found.changes}
    assert changes.keys() == POOLED.parameters.keys()
    assert (changes["lr"].before, changes["lr"].after) == (tuned.arguments["lr"], 0.005)
    reason = "best of one model of the 336 trials of 5 tuned models, moved here and weighed by distance"
    assert {one.reason for name, one in changes.items() if name != "weight_decay"} == {reason}
    assert changes["weight_decay"] in nearest.changes
    header = header_of(found)
    assert header[1].startswith("From 5 tuned models together, the nearest digits-mlp width=32, batch size 32, of the ")
    assert header[1].endswith(" octaves from this model.")
    assert header[-2] == (
        "What the models' trials weigh here: 40% one, 100 steps; 30% two; 20% three; 10% 2 other models."
    )
    assert header[-1] == (
        "Refreshes its preconditioners every 3 steps; with precondition_frequency=10 its refreshes take 30% of the "
        "time, and the table's models, which are small, ended at 1.08 times the loss."
    )
    rarely = {**found.config.arguments, "precondition_frequency": 10}
    of_rare = dataclasses.replace(found, config=dataclasses.replace(found.config, arguments=rarely))
    assert header_of(of_rare) == header[:-1]
    assert found.origin.source.num_trials == 336
    assert found.origin.source.value is None
    interval = next(one for one in found.intervals if one.name == "lr")
    assert interval.low < 0.005 < interval.high


def test_a_stored_model_that_is_nearer_comes_before_what_the_table_says_together_and_a_farther_one_next() -> None:
    target = shipped_members()[0].situation
    near, far = (dataclasses.replace(stored(3e-3), situation=of) for of in (target, situation(width=512)))
    for tuned, kinds in ((near, [SourceKind.STORE, SourceKind.SHIPPED]), (far, [SourceKind.SHIPPED, SourceKind.STORE])):
        found = rank(target, [tuned], num_configs=4, pooled=[POOLED])
        assert [one.origin.source.kind for one in found[:2]] == kinds
        (together,) = [one for one in found if one.config.arguments["lr"] == 0.005]
        assert together is found[kinds.index(SourceKind.SHIPPED)]


def test_what_models_say_of_other_members_comes_after_a_stored_model_and_before_shipped_ones_alone() -> None:
    target = shipped_members()[0].situation
    own = dataclasses.replace(stored(3e-3), situation=dataclasses.replace(target, batch_size=16 * 32))
    soap = next(one for one in shipped_members() if one.preset == "soap")
    of_soap = dataclasses.replace(POOLED, preset="soap", parameters={**soap.best.parameters, "lr": 0.006})
    found = rank(target, [own], num_configs=9, pooled=[POOLED, of_soap])
    assert [one.config.arguments["lr"] for one in found[:3:2]] == [0.005, 0.006]
    assert found[1].origin is own
    assert member_of(found[2].config) == "soap"
    assert found[2].origin.source.num_trials == 336
    assert found[3].origin.source.num_trials == 24
    assert [one.lr_factor for one in found[5:7]] == [0.5, 2.0]  # of the first one
    first, second = rank(target, [], num_configs=4, pooled=[of_soap, POOLED])[:2]
    assert (member_of(first.config), member_of(second.config)) == ("soap", "shampoo")


@pytest.mark.parametrize(("factor", "place"), [(1, 1), (2, 0)])
def test_what_a_job_says_with_the_table_comes_before_it_alone_unless_it_tuned_this_very_model(
    factor: int, place: int
) -> None:
    target = shipped_members()[0].situation
    own = stored(3e-3)
    own = dataclasses.replace(
        own,
        source=dataclasses.replace(own.source, job_id="job_1"),
        situation=dataclasses.replace(target, batch_size=factor * target.batch_size),
    )
    shares = (MemberShare("mine, 100 steps", 0.6, "job_1"), MemberShare("another", 0.4))
    found = rank(target, [own], num_configs=4, pooled=[dataclasses.replace(POOLED, shares=shares, remarks=("all",))])
    together = found[place]
    assert together.config.arguments["lr"] == 0.005
    assert found[1 - place].origin is own
    source = together.origin.source
    assert source.kind is SourceKind.STORE
    assert list(source.shares) == list(shares)
    nearest = (
        "mine" if factor == 1 else "digits-mlp width=32, batch size 32, of the table that comes with shampoo-tuner"
    )
    assert source.name == f"2 tuned models together, the nearest {nearest}"  # by distance alone
    assert together.distance is not None
    assert together.distance.total == 0
    weights = "What the models' trials weigh here: 60% mine, 100 steps (job job_1); 40% another."
    assert header_of(together)[-3:-1] == [weights, "All."]
    answer = UntunedAnswer(1, [together])
    assert answer.says.startswith("This rests on 1 tuned model of this service, and beside it on the table ")
    of_another_method = dataclasses.replace(own, config=dataclasses.replace(own.config, optimizer="adamw"))
    assert not POOLED.asked(of_another_method)


def test_what_the_table_says_together_has_the_decay_of_the_nearest_model_of_the_same_data() -> None:
    """The nearest of all may be of other data, whose decay says nothing."""
    member = next(one for one in shipped_members() if (one.name, one.preset) == ("mlp-deep", "shampoo"))
    target = dataclasses.replace(
        member.situation, features=dataclasses.replace(member.situation.features, depth=2 * 11.0), workload="mine"
    )
    near_of_other_data = rank(target, [], num_configs=4, pooled=[POOLED])[0]
    own = dataclasses.replace(stored(1e-2, decay=0.3), situation=dataclasses.replace(target, batch_size=16 * 32))
    found = next(
        one for one in rank(target, [own], num_configs=4, pooled=[POOLED]) if one.origin.source.num_trials == 336
    )
    refuted = dataclasses.replace(own, source=dataclasses.replace(own.source, status=EvidenceStatus.REFUTED))
    without = next(
        one for one in rank(target, [refuted], num_configs=9, pooled=[POOLED]) if one.origin.source.num_trials == 336
    )
    assert without.config == near_of_other_data.config
    moved_own = next(one for one in rank(target, [own], num_configs=4) if one.origin is own)
    assert found.config.arguments["weight_decay"] == moved_own.config.arguments["weight_decay"]
    assert found.config.arguments["weight_decay"] != without.config.arguments["weight_decay"]
    (of_decay,) = [one for one in found.changes if one.name == "weight_decay"]
    assert of_decay.after == found.config.arguments["weight_decay"]
    assert of_decay.reason.startswith("that of mine, of its data")


def test_an_answer_says_why_the_table_did_not_answer_together() -> None:
    ranked = rank(shipped_members()[0].situation, [], num_configs=2)
    says = UntunedAnswer(0, ranked, not_pooled=NotPooled("it was killed")).says
    assert says.endswith("Tuned models answer each alone, as they could not be asked together: it was killed.")
    assert "together" not in UntunedAnswer(0, ranked).says


def test_the_table_says_something_of_models_like_its_own_alone() -> None:
    near = shipped_members()[0].situation
    assert is_near_shipped(near)
    assert not is_near_shipped(situation(width=32_768, workload=None))
    assert not is_near_shipped(adapters(64))
