"""Configs for models that were never tuned, over HTTP and by both clients."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from service.api import examples
from service.api.schemas.untuned import MAY_BE_TURNED, UntunedAnswerRead, UntunedQuestion
from service.client import ApiError, AsyncClient, Client
from service.evidence.formats.written import Format
from service.evidence.in_words.wording import joined
from service.specification.identity import StoredIdentity
from service.store.repositories import ModelShapeRepository, TrialRepository
from service.store.session import Database
from service.transfer.candidates import SourceKind
from service.transfer.ranking import RARE
from service.transfer.situation import FAMILY_MEMBERS
from service.use_cases.run import finish_job
from service.use_cases.untuned import asking
from tests.support.event_loop import run
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import NOW, begin_trial, claimed_job, end_trial, measure
from tests.support.service.tuned import PATIENCE_SECONDS, ask_ahead
from trainers import run as run_one
from trainers.config import TrialConfig
from trainers.identity.fingerprinting import fingerprint_of
from trainers.identity.values import READING, Fingerprint, ModelShape, ParameterShape
from trainers.loop import train
from trainers.ranks.context import single_process_context

pytestmark = pytest.mark.processes(minutes=1)
"""A process answers for the shipped table's models together."""

SMALL = ModelShape((ParameterShape("linear", (64, 64), 3), ParameterShape("vector", (64,), 3)))
WIDE = ModelShape((ParameterShape("linear", (512, 512), 3), ParameterShape("vector", (512,), 3)))
SMALL_CONVNET: dict[str, Any] = {
    "workload": {"name": "digits-convnet", "options": {"width": 8}},
    "training": {"num_steps": 40, "evaluate_every": 40, "batch_size": 32},
    "baselines": [],
}
IDENTITY = StoredIdentity(
    "f" * 32, "d" * 32, {"device": "cpu", "device_name": None, "world_size": 1, "versions": {}}, SMALL
)
ASKED: dict[str, Any] = examples.UNTUNED_QUESTION


def test_an_empty_store_answers_from_what_is_built_in_and_says_so(
    sqlite_http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_ahead(monkeypatch, ASKED)
    answer = sqlite_http.post("/v1/recommendations", json=ASKED)
    assert answer.status_code == 200, answer.text
    found = UntunedAnswerRead.model_validate(answer.json())
    assert found.basis == "built_in"
    assert found.says.startswith("No tuned model")
    assert "could not be asked" not in found.says
    assert len(found.items) == 5
    assert all("Never tried on this model" in one.python for one in found.items)
    for one in found.items:
        compile(one.python, "<python>", "exec")


def test_the_models_of_the_table_answer_together_and_the_nearest_alone_where_they_cannot(
    sqlite_http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**ASKED, "preconditioner": "shampoo"}
    ask_ahead(monkeypatch, asked)
    found = UntunedAnswerRead.model_validate(sqlite_http.post("/v1/recommendations", json=asked).json())
    first, alone = found.items[:2]
    together = "14 tuned models together, the nearest digits-"
    assert (first.origin.kind, first.origin.num_trials) == (SourceKind.SHIPPED, 336)
    assert first.origin.name.startswith(together)
    (of_lr,) = [change for change in first.changes if change.name == "lr"]
    assert of_lr.after == first.config["lr"]
    assert of_lr.reason.startswith("best of one model of the 336 trials of 14 tuned models")
    assert f"# From {together}" in first.python
    assert len(first.origin.shares) == 14
    assert sum(share.share for share in first.origin.shares) == pytest.approx(1)
    assert {share.job_id for share in first.origin.shares} == {None}
    assert "% 11 other models" in first.python
    assert alone.origin.name.startswith("digits-")

    monkeypatch.setattr(asking, "POOL_MODULE", "tests.support.killed")
    longer = {**asked, "num_steps": ASKED["num_steps"] + 1}
    answer = UntunedAnswerRead.model_validate(sqlite_http.post("/v1/recommendations", json=longer).json())
    assert answer.items[0].origin == alone.origin
    assert "as they could not be asked together: the process that asks them " in answer.says


def test_the_members_of_the_family_answer_each_the_one_first_whose_tuned_models_ended_best(
    sqlite_http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {**ASKED, "budget": {"num_trials": 7}}
    ask_ahead(monkeypatch, asked)
    found = UntunedAnswerRead.model_validate(sqlite_http.post("/v1/recommendations", json=asked).json()).items
    members = [one.config.get("preconditioner", "shampoo") for one in found]
    assert set(members[:4]) == set(FAMILY_MEMBERS)
    assert members[4:6] == members[:1] * 2  # half and twice its learning rate
    assert {one.origin.num_trials for one in found[:4]} == {336}
    others = joined(members[1:4])
    said = f"on tuned models near this one the best trials of {members[0]} were better, at equal steps, than those of "
    of_first, *of_refreshes = (remark for one in found[:4] for remark in one.remarks)
    assert of_first == f"{said}{others}, in this order"
    often = [one for one in found[:4] if one.config.get("precondition_frequency", RARE) < RARE]
    for remark, one in zip(of_refreshes, often, strict=True):
        period, rarely = one.config["precondition_frequency"], f"with precondition_frequency={RARE} its refreshes take"
        assert f"{rarely} {10 * period}% of the time" in remark


def test_the_answer_says_what_of_the_model_was_frozen_and_not_known(sqlite_http: httpx.Client) -> None:
    model = {**ASKED["fingerprint"], "num_frozen": 124_439_808, "remarks": ["Two were taken for one."]}
    answer = sqlite_http.post("/v1/recommendations", json={**ASKED, "fingerprint": model})
    assert answer.status_code == 200, answer.text
    says = UntunedAnswerRead.model_validate(answer.json()).says
    assert says.endswith("124,439,808 of its parameters are frozen and count nowhere. Two were taken for one.")


def gpt2(*, turned: bool) -> list[dict[str, Any]]:
    """The parameters of a block of GPT-2 and its tables, as a file has them."""
    matrices = [(768, 768), (2304, 768), (3072, 768), (768, 3072)]
    linear = [ParameterShape("linear", one[::-1] if turned else one, 1) for one in matrices]
    return ModelShape((*linear, ParameterShape("embedding", (50257, 768), 1))).to_json()


@pytest.mark.parametrize(
    ("reading", "turned", "is_said"),
    [(None, True, True), (1, True, True), (None, False, False), (READING, True, False)],
)
def test_a_file_of_an_earlier_build_that_may_have_gpt2_turned_is_to_be_written_again(
    sqlite_http: httpx.Client, reading: int | None, turned: bool, is_said: bool
) -> None:
    model = {**ASKED["fingerprint"], "parameters": gpt2(turned=turned), "reading": reading}
    answer = sqlite_http.post("/v1/recommendations", json={**ASKED, "fingerprint": model})
    assert (MAY_BE_TURNED in UntunedAnswerRead.model_validate(answer.json()).says) is is_said


def test_an_earlier_file_stays_one_when_it_was_read() -> None:
    earlier = Fingerprint(SMALL, "net.json").to_json()
    del earlier["reading"]
    assert Fingerprint.from_json(earlier).to_json()["reading"] is None


def test_each_config_comes_in_every_format_that_is_asked_for(sqlite_http: httpx.Client) -> None:
    body = {**ASKED, "preconditioner": "shampoo", "formats": list(Format), "budget": {"num_trials": 8}}
    found = UntunedAnswerRead.model_validate(sqlite_http.post("/v1/recommendations", json=body).json())
    assert all([written.format for written in one.formats] == list(Format) for one in found.items)
    for one in found.items:
        text = {written.format: written.text for written in one.formats}
        unsaid = {written.format: written.cannot_say for written in one.formats}
        assert text[Format.PYTHON] == one.python
        config = json.loads(text[Format.JSON] or "")
        assert yaml.safe_load(text[Format.YAML] or "") == config
        assert (config["config"], config["workload"], config["torchrun"]) == (one.config, None, None)
        assert (text[Format.TORCHRUN], len(unsaid[Format.TORCHRUN])) == (None, 1)
        for form in (Format.DISTRIBUTED_SHAMPOO, Format.SCALABLE_SHAMPOO, Format.PYTORCH_OPTIMIZER):
            python = text[form]
            assert python is not None
            compile(python, form, "exec")
            joined = python.replace("\n#   ", " ")
            assert joined.startswith(f"# Shampoo for my_model:Net, as {form.words}\n# Never tried on this model.\n")
            assert all(f"# Cannot be said here: {sentence}.\n" in joined for sentence in unsaid[form])
        assert text[Format.TORCH_MUON] is None
    assert sqlite_http.post("/v1/recommendations", json={**ASKED, "formats": ["toml"]}).status_code == 422


@pytest.mark.slow
def test_the_command_trains_the_model_of_a_workload_with_its_options(
    sqlite_http: httpx.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    model = fingerprint_of("digits-mlp", {"width": 24}).to_json()
    asked = {"fingerprint": model, "batch_size": 32, "num_steps": 20, "formats": ["torchrun"]}
    first = UntunedAnswerRead.model_validate(sqlite_http.post("/v1/recommendations", json=asked).json()).items[0]
    (written,) = first.formats
    assert written.cannot_say == ["ranks and device: it trains on one rank, on the CPU"]
    *_, module, argument = shlex.split(written.text or "")
    assert module == run_one.__name__
    config = TrialConfig.from_json(json.loads(argument))
    assert (config.workload, config.workload_options) == ("digits-mlp", {"width": 24})
    assert (config.optimizer.arguments, config.num_steps, config.batch_size) == (first.config, 20, 32)
    assert run_one.main([argument]) == run_one.DONE
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["step"] == 20
    of_before = {name: value for name, value in model.items() if name != "options"}
    answer = sqlite_http.post("/v1/recommendations", json={**asked, "fingerprint": of_before}).json()
    (written,) = UntunedAnswerRead.model_validate(answer).items[0].formats
    assert (written.text, len(written.cannot_say)) == (None, 1)


def test_a_wider_model_gets_the_tuned_ones_config_moved(database: Database) -> None:
    job_id = finished_job(database, identity=IDENTITY)
    with running(database) as url, Client(url) as client:
        tuned = client.recommendation(job_id)
        assert tuned.key.num_steps is not None
        asked: dict[str, Any] = {
            "batch_size": tuned.key.batch_size,
            "num_steps": tuned.key.num_steps,
            "fingerprint": Fingerprint(WIDE, "wide", workload=tuned.workload),
        }
        found = client.recommend(**asked, num_trials=3)

        async def ask() -> UntunedAnswerRead:
            async with AsyncClient(url) as other:
                return await other.recommend(**asked, num_trials=3)

        assert run(ask()) == found
        nearest = client.recommend(**asked, num_trials=1)
        of_kl = client.recommend(**asked, num_trials=3, preconditioner="kl")
    assert nearest.says.startswith("1 model near this one was tuned here, but these configs come first: this rests on ")
    assert of_kl.basis == "built_in"
    assert of_kl.says.startswith("1 model near this one was tuned here, but its config is not of 'kl': this rests on ")
    assert found.basis == "store"
    assert found.says.startswith("This rests on 1 tuned model of this service, and beside it on the table ")
    (first,) = [one for one in found.items if one.origin.job_id == job_id]  # beside nearer ones of the table
    assert (first.origin.kind, first.lr_factor) == ("store", 1)
    assert first.distance is not None
    assert first.distance.width == pytest.approx(3)
    assert first.config["lr"] == pytest.approx(tuned.config["lr"] / 8, rel=1e-3)
    (change,) = [one for one in first.changes if one.name == "lr"]
    assert (change.before, change.after) == (tuned.config["lr"], first.config["lr"])
    assert {one.name for one in first.intervals} >= {"lr"}


@pytest.mark.slow
def test_a_small_model_that_was_tuned_says_with_the_table_how_to_train_a_wider_one(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, losses = claimed_job(sqlite_database, **SMALL_CONVNET), list[float]()
    model = fingerprint_of("digits-convnet", {"width": 8})
    assert model.digest is not None
    identity = dataclasses.replace(IDENTITY, fingerprint=model.digest, shape=model.shape)
    for number, lr in enumerate((3e-4, 1e-3, 3e-3, 1e-2, 3e-2)):
        begin_trial(sqlite_database, lease, number, values={"lr": lr})
        with sqlite_database.reading() as session:
            config = TrialConfig.from_json(TrialRepository(session).get(lease.job_id, number).config)
        losses.append(final_loss(config))
        measure(sqlite_database, lease, number, 40, losses[-1], identity=identity)
        end_trial(sqlite_database, lease, number)
    with sqlite_database.writing() as session:
        finish_job(session, lease, failure=None, now=NOW)

    monkeypatch.setattr(asking, "POOL_SECONDS", PATIENCE_SECONDS)
    wide = fingerprint_of("digits-convnet", {"width": 16}).to_json()
    asked = {"fingerprint": wide, "batch_size": 32, "num_steps": 40, "formats": ["torchrun"]}
    with running(sqlite_database) as url, httpx.Client(base_url=url, trust_env=False, verify=False, timeout=60) as http:
        first, alone, *_ = UntunedAnswerRead.model_validate(http.post("/v1/recommendations", json=asked).json()).items
        form = {"fingerprint": json.dumps(wide), "batch_size": "32", "num_steps": "40", "num_trials": "5"}
        page = http.post("/recommendations/untuned", data=form).text
        assert http.delete(f"/v1/jobs/{lease.job_id}").status_code == 204
        without = UntunedAnswerRead.model_validate(http.post("/v1/recommendations", json=asked).json()).items[0]
    assert first.origin.name.startswith("15 tuned models together, the nearest digits-convnet width=8, batch size 32")
    assert (first.origin.kind, first.origin.num_trials, first.origin.job_id) == (SourceKind.STORE, 341, None)
    (own,) = [share for share in first.origin.shares if share.job_id is not None]
    assert (own.name, own.job_id) == ("digits-convnet width=8, batch size 32, 40 steps", lease.job_id)
    assert own.share > 0.05
    assert f"{own.name} (job {lease.job_id})" in first.python.replace("\n#   ", " ")
    assert f'% {own.name}, <a href="/jobs/{lease.job_id}">{lease.job_id}</a>' in page
    assert alone.origin.job_id == lease.job_id
    assert (without.origin.kind, without.origin.num_trials) == (SourceKind.SHIPPED, 336)
    *_, config_of_answer = shlex.split(first.formats[0].text or "")
    assert final_loss(TrialConfig.from_json(json.loads(config_of_answer))) < min(losses)


def final_loss(config: TrialConfig) -> float:
    *_, last = train(config, single_process_context())
    return last.metrics["validation_loss"]


def test_a_source_of_the_store_is_named_with_the_options_of_its_workload(database: Database) -> None:
    workload = {"name": "digits-mlp", "options": {"width": 32}}
    wider = finished_job(database, identity=IDENTITY, workload=workload)
    plain = finished_job(database, identity=IDENTITY)
    asked: dict[str, Any] = {"fingerprint": Fingerprint(WIDE, "wide"), "batch_size": 32, "num_steps": 100}
    with running(database) as url, Client(url) as client:
        of_wider, of_plain = (client.recommend(**asked, proxy_job=job_id).items[0].origin for job_id in (wider, plain))
    assert of_wider.name.startswith("digits-mlp width=32, batch size ")
    assert of_plain.name.startswith("digits-mlp, batch size ")


def test_a_language_models_config_keeps_the_settings_of_its_embeddings(
    sqlite_database: Database, tmp_path: Path
) -> None:
    (tmp_path / "text.txt").write_text("All work and no play makes Jack a dull boy.\n" * 2000)
    workload = {"name": "text-lm", "options": {"path": str(tmp_path / "text.txt"), "size": "tiny"}}
    job_id = finished_job(sqlite_database, identity=IDENTITY, workload=workload)
    asked: dict[str, Any] = {"fingerprint": Fingerprint(WIDE, "wide"), "batch_size": 32, "num_steps": 100}
    with running(sqlite_database) as url, Client(url) as client:
        tuned = client.recommendation(job_id)
        (first,) = client.recommend(**asked, proxy_job=job_id, num_trials=1, formats=["json"]).items
    assert tuned.parameter_groups
    assert "parameter_groups(model)," in tuned.python
    assert "parameter_groups(model)," in first.python
    groups = json.loads(first.formats[0].text or "")["parameter_groups"]
    assert [group["parameters"] for group in groups] == [own.parameters for own in tuned.parameter_groups]


def test_the_answer_of_a_proxy_job_alone_is_moved(database: Database) -> None:
    job_id, nearer = finished_job(database, identity=IDENTITY), finished_job(database, identity=IDENTITY)
    shapeless = finished_job(database)
    asked: dict[str, Any] = {"fingerprint": Fingerprint(WIDE, "wide"), "batch_size": 32, "num_steps": 100_000}
    with running(database) as url, Client(url) as client:
        tuned = client.recommendation(job_id)
        found = client.recommend(**asked, proxy_job=job_id)
        assert client.recommend(**asked, proxy_job=nearer).items[0].origin.job_id == nearer
        for unknown, why in (("job_none", "no job 'job_none' has a recommendation"), (shapeless, "is not known")):
            with pytest.raises(ApiError, match=f"proxy_job: .*{why}") as refused:
                client.recommend(**asked, proxy_job=unknown)
            assert refused.value.status == 422
        assert client.recommend(**asked, proxy_job=job_id, preconditioner="shampoo") == found
        with pytest.raises(ApiError, match=f"preconditioner: the config that {job_id} .* is of 'shampoo', got 'kl'"):
            client.recommend(**asked, proxy_job=job_id, preconditioner="kl")
    assert found.basis == "store"
    assert found.says.startswith(f"This rests on job {job_id} alone (provisional), tuned for digits-mlp, batch size ")
    assert [(one.origin.job_id, one.lr_factor) for one in found.items] == [(job_id, 1), (job_id, 0.5), (job_id, 2)]
    first = found.items[0]
    assert first.config["lr"] < tuned.config["lr"]
    assert first.training["num_steps"] == 100_000
    (interval,) = [one for one in first.intervals if one.name == "lr"]
    assert interval.low < first.config["lr"] < interval.high
    assert f"NUM_STEPS = 100000  # of {first.training['batch_size']} examples, all ranks together" in first.python


def test_a_shape_takes_the_place_of_the_one_that_an_earlier_version_read(database: Database) -> None:
    for shape in (SMALL, WIDE, WIDE):
        with database.writing() as session:
            repository = ModelShapeRepository(session)
            repository.put("a", shape)
    with database.reading() as session:
        assert ModelShapeRepository(session).of(["a", "b"]) == {"a": WIDE}


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"batch_size": 0}, "batch_size", "greater than or equal to 1"),
        ({"budget": {"num_trials": 21}}, "budget.num_trials", "less than or equal to 20"),
        ({"fingerprint": {"parameters": []}}, "fingerprint.parameters", "at least 1 item"),
        (
            {"fingerprint": {"parameters": [{"kind": "square", "shape": [2, 2]}]}},
            "fingerprint.parameters[0].kind",
            "'linear'",
        ),
        (
            {"fingerprint": {"parameters": [{"kind": "linear", "shape": [2, -2]}]}},
            "fingerprint.parameters[0].shape[1]",
            "greater than or equal to 1",
        ),
        (
            {"fingerprint": {"parameters": [{"kind": "linear", "shape": []}]}},
            "fingerprint.parameters[0].shape",
            "must have 2 sizes for the kind 'linear', got []",
        ),
        ({"steps": 3}, "steps", ""),
        ({"preconditioner": "muon"}, "preconditioner", "'shampoo', 'soap', 'kl' or 'spectral'"),
    ],
)
def test_what_is_wrong_is_named_with_its_value(
    sqlite_http: httpx.Client, changed: dict[str, Any], field: str, message: str
) -> None:
    answer = sqlite_http.post("/v1/recommendations", json={**ASKED, **changed})
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert message in error["message"]


def test_the_client_raises_what_the_service_refuses(sqlite_database: Database) -> None:
    with running(sqlite_database) as url, Client(url) as client, pytest.raises(ApiError) as refused:
        client.recommend(ASKED["fingerprint"], batch_size=64, num_steps=0)
    assert refused.value.status == 422


def test_the_examples_hold() -> None:
    UntunedQuestion.model_validate(examples.UNTUNED_QUESTION)
    found = UntunedAnswerRead.model_validate(examples.UNTUNED_ANSWER)
    assert found.model_dump(mode="json") == examples.UNTUNED_ANSWER
