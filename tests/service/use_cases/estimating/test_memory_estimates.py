"""Predicting what trials need of a rank's memory: against what optimizers keep, and of whole spaces."""

from __future__ import annotations

import dataclasses
import random
import tempfile
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from service.domain import Phase
from service.specification.estimate import Estimate, MemoryEstimate, SpaceMemory
from service.specification.estimate_lines import estimate_lines
from service.specification.planning import JobPlan, plan_job
from service.use_cases.estimating import memory_estimates
from service.use_cases.estimating.memory_estimates import predict_job
from service.use_cases.estimating.memory_predictor import MemoryPredictor, NotPredictable
from shampoo import WeightAveraging
from tests.support.service.scenarios import specification
from tests.support.trainers import small_data
from tests.support.waiting import PATIENCE_SECONDS
from trainers.config import TrialConfig
from trainers.memory.activations import TooLarge, activation_bytes, kept_bytes
from trainers.memory.peak import state_bytes
from trainers.memory.prediction import Needs, needs_of, predicted_bytes, without_data
from trainers.ranks.context import single_process_context
from trainers.trial import build_trial
from trainers.workload.batches import train_batches
from trainers.workloads.registry import BUILT_IN, load

KIND = {"type": "categorical", "name": "preconditioner", "choices": ["none", "shampoo"]}


def plan(**fields: Any) -> JobPlan:
    return plan_job(specification(**fields))


def config_of(optimizer: str, **arguments: Any) -> TrialConfig:
    found = plan(search_space={"optimizer": optimizer, "fixed": arguments}, baseline=None)
    return found.trial_config(Phase.SEARCH, {})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Options of the workloads that need some."""
    root = tmp_path_factory.mktemp("data")
    return {
        "image-folder": small_data.write_images(root),
        "text-lm": small_data.write_text(root),
        "click-log": small_data.write_clicks(root),
        "huggingface": small_data.GPT2,
    }


def needs_when_built(config: TrialConfig) -> Needs:
    """Of a trial that is really built, after torch's own optimizers have made their state; without scratch memory."""
    trial = build_trial(config, load(config.workload, config.workload_options), single_process_context())
    model, optimizer = trial.parallel.model, trial.optimizer
    inner = optimizer.optimizer if isinstance(optimizer, WeightAveraging) else optimizer
    averages = state_bytes(optimizer) - state_bytes(inner)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    weights = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
    return Needs(
        weights=weights,
        gradients=sum(parameter.nbytes for parameter in trained),
        averages=averages,
        optimizer=state_bytes(inner),
        scratch=0,
    )


@pytest.mark.parametrize("side", [Phase.SEARCH, "adamw"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_prediction_is_what_a_trial_of_the_workload_keeps(
    name: str, side: str, data: dict[str, dict[str, Any]]
) -> None:
    found = plan(workload={"name": name, "options": data.get(name, {})})
    space = found.spaces[side]
    for parameters in (space.defaults(), space.sample(random.Random(1))):
        config = found.trial_config(side, parameters)
        predicted = needs_of(config)
        assert dataclasses.replace(predicted, scratch=0) == needs_when_built(config)
        assert (predicted.scratch > 0) == (side == Phase.SEARCH)
        assert predicted_bytes(config) == sum(dataclasses.astuple(predicted))


@pytest.mark.parametrize(
    ("optimizer", "arguments", "training"),
    [
        ("adamw", {"amsgrad": True}, {}),
        ("adamw", {}, {"averaging": {"method": "ema", "arguments": {"decay": 0.9}}}),
        ("sgd", {"momentum": 0.9}, {}),
        ("sgd", {}, {}),
        ("shampoo", {"state_dtype": "int4"}, {"averaging": {"method": "schedule_free"}}),
        ("shampoo", {"preconditioner": "soap", "max_preconditioner_dim": 32}, {}),
    ],
)
def test_a_prediction_is_what_the_optimizer_keeps(
    optimizer: str, arguments: dict[str, Any], training: dict[str, Any]
) -> None:
    space = {"optimizer": optimizer, "fixed": arguments}
    found = plan(search_space=space, baseline=None, training={"num_steps": 40, "evaluate_every": 10, **training})
    config = found.trial_config(Phase.SEARCH, {})
    assert dataclasses.replace(needs_of(config), scratch=0) == needs_when_built(config)


@pytest.mark.slow
def test_a_language_model_of_hugging_face_is_predicted_from_its_directory(tmp_path: Path) -> None:
    architecture = load("huggingface", small_data.GPT2)
    architecture.build_model().save_pretrained(tmp_path)  # type: ignore[operator]  # a model of the library
    options = {"model_path": str(tmp_path), "weights": "pretrained", "tokenizer": "byte"}
    found = plan(workload={"name": "huggingface", "options": options}, baseline=None)
    config = found.trial_config(Phase.SEARCH, found.spaces[Phase.SEARCH].defaults())
    assert dataclasses.replace(needs_of(config), scratch=0) == needs_when_built(config)


def test_parameters_that_hold_values_are_rid_of_them_and_stay_shared() -> None:
    """They were not made by torch's factories, so that the default device did not matter to them."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    model[0].weight = model[1].weight
    model[0].bias.requires_grad_(False)
    emptied = without_data(model)
    assert all(parameter.is_meta for parameter in emptied.parameters())
    assert emptied[0].weight is emptied[1].weight  # type: ignore[index]
    assert [(name, p.shape, p.requires_grad) for name, p in emptied.named_parameters()] == [
        ("0.weight", (8, 8), True),
        ("0.bias", (8,), False),
        ("1.bias", (8,), True),
    ]


def test_what_ranks_share_is_divided() -> None:
    config = config_of("shampoo")
    alone = predicted_bytes(config, world_size=1)
    assert predicted_bytes(config, world_size=4) == alone
    divided = TrialConfig.from_json({**config.to_json(), "parallelism": {"mode": "fsdp2", "shard_size": None}})
    assert predicted_bytes(divided, world_size=4) < 0.6 * alone


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_the_share_of_a_space_that_cannot_fit_follows_from_the_limit_and_activations_are_measured() -> None:
    space = {"optimizer": "shampoo", "parameters": [KIND]}
    found = plan(search_space=space)
    small, large = (
        predicted_bytes(found.trial_config(Phase.SEARCH, {"preconditioner": kind})) for kind in ("none", "shampoo")
    )
    for limit, least, most in ((small - 1, 1.0, 1.0), (large - 1, 0.0, 0.99), (large, 0.0, 0.0)):
        limited = plan(search_space=space, resources={"memory_per_worker": limit}, confirmation={"num_seeds": 4})
        estimate = predict_job(limited, start_seconds=PATIENCE_SECONDS).memory
        assert estimate.problem is None
        of_search = estimate.spaces[Phase.SEARCH]
        assert estimate.limit_bytes == limit
        assert estimate.machine_bytes is not None
        assert estimate.machine_bytes > large
        assert of_search.default_bytes == small
        assert of_search.largest_bytes in (small, large)
        assert of_search.share_infeasible is not None
        assert least <= of_search.share_infeasible <= most
        if of_search.num_points > 100 and limit == large - 1:
            assert of_search.share_infeasible == pytest.approx(0.5, abs=0.2)
    assert estimate.activations_problem is None
    assert len(estimate.spaces) == 2
    measured = {own.activation_bytes for own in estimate.spaces.values()}
    config = found.trial_config(Phase.SEARCH, found.spaces[Phase.SEARCH].defaults())
    workload = load(config.workload, config.workload_options)
    assert measured == {activation_bytes(config, workload, model_bytes=0, world_size=1)}
    assert estimate.kept_weights_bytes == 2 * needs_of(config).weights


@pytest.mark.slow
def test_activations_grow_as_a_few_examples_tell(data: dict[str, dict[str, Any]]) -> None:
    """The bytes that autograd keeps of a whole batch, measured, are those told from two and four examples."""
    for name in ("digits-convnet", "text-lm", "image-folder", "click-log", "huggingface"):
        options = {**data.get(name, {}), **({"num_workers": 0} if name == "image-folder" else {})}
        found = plan(workload={"name": name, "options": options}, training={"num_steps": 40, "batch_size": 32})
        config = found.trial_config(Phase.SEARCH, found.spaces[Phase.SEARCH].defaults())
        workload = load(name, config.workload_options)
        [batch] = islice(
            train_batches(workload, batch_size=32, seed=config.seed, rank=0, world_size=1, start_step=0), 1
        )
        whole = kept_bytes(workload.build_model().train(), workload, batch)
        told = activation_bytes(config, workload, model_bytes=0, world_size=1)
        # Temporary sums over few examples are cut up otherwise than over many.
        assert told == pytest.approx(whole, rel=0.02), name
        assert activation_bytes(config, workload, model_bytes=0, world_size=2) < 0.6 * told


def test_activations_are_those_that_the_backward_pass_needs() -> None:
    """Of a linear layer its input, of ReLU its output, of cross-entropy the logarithms of the shares and the labels."""
    config = replace(config_of("adamw"), workload_options={"hidden_sizes": [32]}, batch_size=8)
    workload = load(config.workload, config.workload_options)
    floats = 8 * (64 + 32 + 10)
    expected = 4 * floats + 8 * 8 + 4  # the labels, and cross-entropy's sum of weights
    assert activation_bytes(config, workload, model_bytes=0, world_size=1) == pytest.approx(expected, abs=64)
    assert activation_bytes(
        replace(config, precision="bfloat16"), workload, model_bytes=0, world_size=1
    ) != pytest.approx(expected, abs=64)
    with pytest.raises(TooLarge, match="2,048 MiB"):
        activation_bytes(config, workload, model_bytes=2**31, world_size=1)


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_what_cannot_be_built_is_told_and_the_process_goes_on() -> None:
    found = plan()
    config = found.trial_config(Phase.SEARCH, found.spaces[Phase.SEARCH].defaults())
    broken = TrialConfig.from_json({**config.to_json(), "workload_options": {"hidden_sizes": [-3]}})
    with MemoryPredictor(found) as predictor:
        with pytest.raises(NotPredictable, match="hidden_sizes"):
            predictor.predict(broken, timeout_seconds=PATIENCE_SECONDS)
        assert predictor.predict(config, timeout_seconds=PATIENCE_SECONDS) == predicted_bytes(config)
        with pytest.raises(NotPredictable, match="takes too long"):
            predictor.predict(config, timeout_seconds=-1.0)
        with pytest.raises(NotPredictable, match="has ended"):
            predictor.predict(config, timeout_seconds=PATIENCE_SECONDS)


def test_nothing_is_left_open_where_no_process_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    found, before = plan(), psutil.Process().num_fds()
    with pytest.raises(FileNotFoundError):
        MemoryPredictor(found)
    assert psutil.Process().num_fds() == before


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_of_a_model_that_takes_long_to_build_some_points_are_predicted_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimates, "SAMPLED_AFTER_SECONDS", 0.0)
    estimate = predict_job(plan(), start_seconds=PATIENCE_SECONDS).memory
    assert {side: space.num_points > 1 for side, space in estimate.spaces.items()} == dict.fromkeys(
        (Phase.SEARCH, "adamw"), True
    )


def test_the_dry_run_says_how_much_does_not_fit_or_why_that_is_unknown() -> None:
    def lines(memory: MemoryEstimate) -> str:
        estimate = Estimate(
            num_trials={Phase.SEARCH: 4},
            num_steps=40,
            max_steps=160,
            measured=None,
            max_device_hours=None,
            memory=memory,
        )
        return "\n".join(estimate_lines(estimate))

    def of_search(share: float | None, activations: int | None = None) -> dict[str, SpaceMemory]:
        return {Phase.SEARCH: SpaceMemory(2**30, 3 * 2**30, share, 201, activations)}

    told = lines(MemoryEstimate(2 * 2**30, of_search(0.25)))
    assert "need 1,024 MiB on each rank with the defaults, up to 3,072 MiB in 201 points of the space." in told
    assert "25.0% of them do not fit and would not be launched." in told
    assert "The limit is 2,048 MiB for each rank." in told
    assert "would not be launched" not in lines(MemoryEstimate(4 * 2**30, of_search(0.0)))
    assert "Memory limit unknown" in lines(MemoryEstimate(None, of_search(None)))
    for machine, is_told in ((2**30 - 1, True), (2**30, False), (None, False)):
        told_of_it = lines(MemoryEstimate(None, of_search(None), machine_bytes=machine))
        assert ("TOO LARGE: a rank of the search needs more than" in told_of_it) == is_told
    of_machine = MemoryEstimate(4 * 2**30, of_search(0.0), machine_bytes=2**30 - 1, is_machine_limit=True)
    told_of_it = lines(of_machine)
    assert "a trial whose ranks together need more than twice that, 4,096 MiB each, is not launched" in told_of_it
    assert "TOO LARGE: a rank of the search" in told_of_it
    assert "NOTHING FITS" not in told
    assert "NOTHING FITS: the search of such a job would train nothing." in lines(MemoryEstimate(2**20, of_search(1.0)))
    for mib, is_told in ((1000, False), (1200, True)):
        told = lines(MemoryEstimate(2 * 2**30, of_search(0.25, mib * 2**20)))
        assert f"Activations take about {mib:,} MiB more" in told
        assert ("the default of the search is likely to run out of memory" in told) == is_told
    unmeasured = lines(MemoryEstimate(None, of_search(None), activations_problem="the model is too large"))
    assert "Activations come on top and are not known: the model is too large." in unmeasured
    assert "The winners' weights take 3 MiB of storage" in lines(MemoryEstimate(None, kept_weights_bytes=3 * 2**20))
    assert "winners' weights" not in lines(MemoryEstimate(None, kept_weights_bytes=0))
    unknown = lines(MemoryEstimate(None, problem="torch is not installed here"))
    assert "The memory of trials cannot be predicted: torch is not installed here." in unknown
