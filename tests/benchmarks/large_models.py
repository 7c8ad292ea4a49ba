"""What the optimizer needs for models of 1 billion to 1 trillion parameters, on each of as many ranks as train them.

Weights, gradients and what is sent are float32, matrices are stepped by a member of the family, the rest by AdamW on
every rank's own rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmarks.model_shapes import SPLIT_MODELS
from tests.benchmarks.ranks_simulation import Group, Simulation, groups_of, simulate

STATE_DTYPES = ("float32", "bfloat16", "int4")


@dataclass(frozen=True, slots=True)
class Training:
    """A model, the ranks that train it, and the batch of a step."""

    model: str
    num_replicas: int
    num_shards: int
    batch_tokens: int

    @property
    def name(self) -> str:
        return f"{self.model}.{self.num_replicas}x{self.num_shards}"


TRAININGS = (
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
    """Of each rank; "most" is the rank that has most."""

    training: Training
    preconditioner: str
    mean_adamw_bytes: float
    """State of AdamW, sharded evenly."""
    mean_state_bytes: dict[str, float]
    most_state_bytes: dict[str, int]
    """By the dtype of factors, where the member has any."""
    most_working_bytes: int
    """Whole weights and gradients of what is owned, and their buffers."""
    model_operations: float
    """A rank's share of the model's forward and backward pass: 6 for each active weight and token, attention left out,
    so that the optimizer's part is rather overstated."""
    mean_operations: float
    most_operations: float
    fsdp_bytes: float
    """What FSDP2 itself sends for a step: two all-gathers of weights and a reduce-scatter of gradients over the shards,
    and an all-reduce over the replicas."""
    formula_bytes: float
    """What `shampoo.distributed` says that a rank sends, which holds where all replicas own as much."""
    mean_sent_bytes: float
    most_moved_bytes: int
    """Sent or received, whichever is more."""
    least_imbalance: float


def needs(training: Training, preconditioner: str) -> Needs:
    """What a training run takes."""
    model = SPLIT_MODELS[training.model]()
    num_ranks = training.num_replicas * training.num_shards

    def simulated(**config: str) -> Simulation:
        groups: list[Group] = groups_of(model, preconditioner=preconditioner, local_plain=True, **config)
        return simulate(groups, num_shards=training.num_shards, num_replicas=training.num_replicas)

    dtypes = STATE_DTYPES if preconditioner != "spectral" else STATE_DTYPES[:1]
    by_dtype = {dtype: simulated(state_dtype=dtype) for dtype in dtypes}
    ranks = by_dtype["float32"].ranks
    weights_bytes = 4 * model.num_elements
    owned_bytes = sum(rank.owned_bytes for rank in ranks)
    over_shards, over_replicas = ((n - 1) / n for n in (training.num_shards, training.num_replicas))
    return Needs(
        training=training,
        preconditioner=preconditioner,
        mean_adamw_bytes=2 * weights_bytes / num_ranks,
        mean_state_bytes={d: sum(rank.state_bytes for rank in s.ranks) / num_ranks for d, s in by_dtype.items()},
        most_state_bytes={d: max(rank.state_bytes for rank in s.ranks) for d, s in by_dtype.items()},
        most_working_bytes=4 * max(rank.owned_bytes for rank in ranks),
        model_operations=6.0 * model.active_elements * training.batch_tokens / num_ranks,
        mean_operations=sum(rank.operations for rank in ranks) / num_ranks,
        most_operations=max(rank.operations for rank in ranks),
        fsdp_bytes=weights_bytes * (3 * over_shards + 2 * over_replicas / training.num_shards),
        formula_bytes=3 * owned_bytes / num_ranks
        + (owned_bytes / training.num_shards if training.num_replicas > 1 else 0.0),
        mean_sent_bytes=sum(rank.sent_bytes for rank in ranks) / num_ranks,
        most_moved_bytes=max(max(rank.sent_bytes, rank.received_bytes) for rank in ranks),
        least_imbalance=by_dtype["float32"].least_imbalance,
    )


def all_needs(models: tuple[str, ...], preconditioners: tuple[str, ...]) -> Iterator[Needs]:
    """For all trainings of these models."""
    for training in TRAININGS:
        if training.model in models:
            for preconditioner in preconditioners:
                yield needs(training, preconditioner)
