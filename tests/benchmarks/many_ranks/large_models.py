"""Needs of the optimizer for models of 1 billion to 1 trillion parameters, on each of as many ranks as train them.

Weights, gradients and what is sent are float32, matrices are stepped by a member of the family, the rest by AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from shampoo.cost import estimate
from tests.benchmarks.many_ranks.ranks_simulation import fully_sharded, groups_of, replicated, simulate
from tests.benchmarks.steps.model_shapes import SPLIT_MODELS

STATE_DTYPES = ("float32", "bfloat16", "int4")


@dataclass(frozen=True, slots=True)
class Training:
    """A model, the ranks that train it, and the batch of a step."""

    model: str
    num_replicas: int
    num_shards: int
    """1: plain parameters, which all replicas share, as under DDP."""
    batch_tokens: int

    @property
    def name(self) -> str:
        return f"{self.model}.{self.num_replicas}x{self.num_shards}"


TRAININGS = (
    Training("llama_1b", 8, 1, 1 << 20),
    Training("llama_1b", 1, 8, 1 << 20),
    Training("llama_1b", 8, 8, 1 << 20),
    # 4M tokens, as Llama 2.
    Training("llama_70b", 1, 64, 1 << 22),
    Training("llama_70b", 8, 64, 1 << 22),
    # 3,072 sequences of 2,048 on 3,072 ranks, as arXiv 2104.04473 trained it (otherwise split).
    Training("dense_1t", 6, 512, 3_072 * 2_048),
    # 67M tokens, as Kimi K2.
    Training("mixture_1t", 8, 512, 1 << 26),
    Training("stacked_mixture_1t", 8, 512, 1 << 26),
)


@dataclass(frozen=True, slots=True)
class Needs:
    """Needs of each rank; "most" is the rank that has most."""

    training: Training
    preconditioner: str
    mean_adamw_bytes: float
    """State of AdamW, sharded evenly."""
    mean_state_bytes: dict[str, float]
    """Mean state of a rank, by the dtype of factors where the member has any."""
    most_state_bytes: int
    """Most state of a rank with float32."""
    most_working_bytes: int
    """Weights and gradients of what is owned in two rounds, and their buffers."""
    model_operations: float
    """A rank's share of the model's forward and backward pass: 6 for each active weight and token, attention left out,
    so that the optimizer's part is rather overstated."""
    mean_operations: float
    most_operations: float
    fsdp_bytes: float
    """Bytes that FSDP2 itself sends in a step: two all-gathers of weights, a reduce-scatter of gradients over shards
    and an all-reduce over the replicas; so what DDP sends without shards."""
    formula_bytes: float
    """Bytes that a rank sends by the formula of `shampoo.distributed`, which holds where all own as much."""
    mean_sent_bytes: float
    most_moved_bytes: int
    """Sent or received, whichever is more."""
    imbalance: float
    least_imbalance: float
    """The larger of state and work, and what no assignment could be below in both."""
    step_imbalance: float
    """Most work of a rank in each step over the mean, over a refresh period."""
    assignment_seconds: float


def needs(training: Training, preconditioner: str) -> Needs:
    """The needs of a training run."""
    model = SPLIT_MODELS[training.model]()
    num_ranks = training.num_replicas * training.num_shards
    array = (
        replicated(num_ranks) if training.num_shards == 1 else fully_sharded(training.num_shards, training.num_replicas)
    )

    found = simulate(groups_of(model, preconditioner=preconditioner), array)
    state = {
        dtype: sum(
            estimate(group.shapes, **group.config).state_bytes
            for group in groups_of(model, preconditioner=preconditioner, state_dtype=dtype)
        )
        for dtype in (STATE_DTYPES if preconditioner != "spectral" else STATE_DTYPES[:1])
    }
    weights_bytes = 4 * model.num_elements
    matrices_bytes = 4 * sum(math.prod(shape) for shape in model.matrices)
    over_shards, over_replicas = ((n - 1) / n for n in (training.num_shards, training.num_replicas))
    return Needs(
        training=training,
        preconditioner=preconditioner,
        mean_adamw_bytes=2 * weights_bytes / num_ranks,
        mean_state_bytes={dtype: state_bytes / num_ranks for dtype, state_bytes in state.items()},
        most_state_bytes=max(found.state_bytes),
        most_working_bytes=max(found.moved.working_bytes),
        model_operations=6.0 * model.active_elements * training.batch_tokens / num_ranks,
        mean_operations=sum(found.operations) / num_ranks,
        most_operations=max(found.operations),
        fsdp_bytes=weights_bytes * (3 * over_shards + 2 * over_replicas / training.num_shards),
        formula_bytes=3 * matrices_bytes / num_ranks * over_shards
        + weights_bytes / training.num_shards * over_replicas,
        mean_sent_bytes=sum(found.moved.sent_bytes) / num_ranks,
        most_moved_bytes=max(*found.moved.sent_bytes, *found.moved.received_bytes),
        imbalance=max(found.work_imbalance, found.state_imbalance),
        least_imbalance=max(found.least_imbalance),
        step_imbalance=found.step_imbalance(stagger_refresh=True),
        assignment_seconds=found.assignment_seconds,
    )


def all_needs(models: tuple[str, ...], preconditioners: tuple[str, ...]) -> Iterator[Needs]:
    """For all trainings of these models."""
    for training in TRAININGS:
        if training.model in models:
            for preconditioner in preconditioners:
                yield needs(training, preconditioner)
