"""The check of sound workloads whose batches, losses or sizes are not as most are: what it cannot tell it does not
call wrong."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from tests.support.trainers.broken_workloads import NUM_EXAMPLES, NUM_FEATURES, Sound
from trainers.workload_check.child import outcome_of
from trainers.workload_check.outcome import RuleOutcome
from trainers.workload_check.rules import RULES
from trainers.workload_check.subject import Subject


def outcome(rule_name: str, cls: type[Sound]) -> RuleOutcome:
    (rule,) = (rule for rule in RULES if rule.name == rule_name)
    return outcome_of(rule, Subject(f"{__name__}:{cls.__name__}", {}, batch_size=12))


class JoinsGraphs(Sound):
    """Example i has i % 3 + 1 nodes; a batch has the nodes of all its examples, and the example of each."""

    def batch(self, indices: Tensor) -> Any:
        inputs, targets = super().batch(indices)
        owner = torch.arange(len(indices)).repeat_interleave(indices % 3 + 1)
        return {"nodes": inputs[owner], "owner": owner, "targets": targets}

    def loss(self, model: nn.Module, batch: Any) -> Any:
        sums = torch.zeros(len(batch["targets"])).index_add(0, batch["owner"], model(batch["nodes"]).squeeze(1))
        return functional.mse_loss(sums, batch["targets"])


class GivesOneExample(Sound):
    def batch(self, indices: Tensor) -> Any:
        return super().batch(indices[:1])


def test_batches_of_graphs_are_doubtful_and_those_without_the_examples_wrong() -> None:
    found = outcome("batches", JoinsGraphs)
    assert found.status == "warning"
    assert "rows instead of 4 (batch_size 12 / world_size): such batches, as of graphs of many" in found.text
    for rule in ("sharding", "epoch", "mean loss"):
        assert (outcome(rule, JoinsGraphs).status, outcome(rule, JoinsGraphs).text) == (
            "skipped",
            "the batches cannot be cut into examples",
        )
    for rule in ("data order", "start step", "gradient", "learning"):
        assert outcome(rule, JoinsGraphs).status == "ok"
    found = outcome("batches", GivesOneExample)
    assert found.status == "failed"
    assert found.text.startswith("batch[0] of rank 0 of 1 has 1 rows instead of 12 (batch_size 12 / world_size). The")


class DrawsNoise(Sound):
    """As a diffusion model does, in evaluation mode, too."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        inputs, targets = batch
        return functional.mse_loss(model(inputs + torch.randn_like(inputs)).squeeze(1), targets)


def test_a_loss_that_draws_noise_is_not_said_to_depend_on_the_number_of_ranks() -> None:
    found = outcome("mean loss", DrawsNoise)
    assert (found.status, found.text) == (
        "skipped",
        "the loss of one batch is another each time, as where it draws noise",
    )


class AsksForLargeBatches(Sound):
    default_batch_size = NUM_EXAMPLES + 1


class AsksForAllAtOnce(Sound):
    default_batch_size = NUM_EXAMPLES


def test_a_batch_size_beyond_the_training_set_is_doubtful() -> None:
    assert outcome("construction", AsksForAllAtOnce).text == "50 training examples"
    found = outcome("construction", AsksForLargeBatches)
    assert (found.status, found.text) == (
        "warning",
        "default_batch_size 51 exceeds the 50 training examples: each batch has some of them more than once",
    )


class LeavesAnExpertOut(Sound):
    def build_model(self) -> nn.Module:
        model = super().build_model()
        model.register_module("expert", nn.Linear(NUM_FEATURES, 1))
        return model

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return functional.mse_loss(model[:3](batch[0]).squeeze(1), batch[1])  # type: ignore[index]


def test_what_a_step_leaves_out_is_told_how_to_be_in_it() -> None:
    found = outcome("gradient", LeavesAnExpertOut)
    assert found.status == "failed"
    assert "no gradient reaches expert.weight, expert.bias. Use them in the loss (0 times the sum of what" in found.text


class HasASparseTable(Sound):
    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(2, 1, sparse=True), nn.Flatten())

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return functional.mse_loss(model((batch[0][:, 0] > 0).long()).squeeze(1), batch[1])


def test_a_sparse_gradient_is_told_by_name() -> None:
    found = outcome("gradient", HasASparseTable)
    assert found.text.startswith("the gradient of 0.weight is sparse. Make embeddings with sparse=False: ")


class AddsUpTheRanks(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        share = super().evaluate(model, rank=rank, world_size=world_size, device=device)
        total = torch.tensor(share["validation_loss"])
        dist.all_reduce(total)
        return {"validation_loss": tuple(total.tolist())}


def test_an_evaluation_that_communicates_is_told_that_the_loop_does() -> None:
    found = outcome("metrics", AddsUpTheRanks)
    assert found.text.startswith("evaluate communicates with other ranks. Give this rank's (sum, weight) alone: ")


class HasAnUndefinedMetric(Sound):
    def evaluate(self, model: nn.Module, *, rank: int, world_size: int, device: str) -> Any:
        return {"validation_loss": (float("nan"), 1.0)}


def test_a_metric_that_is_not_finite_is_told_once() -> None:
    assert outcome("metrics", HasAnUndefinedMetric).text.startswith(
        "metric 'validation_loss' of rank 0 of 1 is (nan, 1"
    )
    for rule in ("shared evaluation", "repeated evaluation"):
        found = outcome(rule, HasAnUndefinedMetric)
        assert (found.status, found.text) == ("skipped", "a metric is not finite")


class InitialisesItsModelLate(Sound):
    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 1))


def test_a_model_without_shapes_is_told_by_name_and_by_one_rule() -> None:
    found = outcome("model", InitialisesItsModelLate)
    assert (found.status, found.text) == (
        "failed",
        "0.weight, 0.bias have no shape yet. Let build_model run a batch through the model",
    )
    for rule in ("loss", "metrics", "untouched model"):
        found = outcome(rule, InitialisesItsModelLate)
        assert (found.status, found.text) == ("skipped", "parts of the model have no shape yet")
