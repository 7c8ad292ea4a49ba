"""First configs for low-rank adapters, of which published points and the shipped table know nothing: learning rates
that were measured on the adapters of a small GPT-2 (`python -m tests.benchmarks.answers.adapter_values`), which rules
move."""

from __future__ import annotations

from service.transfer.candidates import Source, SourceKind, TransferCandidate
from service.transfer.rules import TunedConfig
from service.transfer.situation import Situation
from trainers.identity.values import ModelShape, ParameterShape

_RANK, _WIDTH, _NUM_BLOCKS = 8, 64, 2
_OUTPUTS = (_WIDTH, 3 * _WIDTH, 4 * _WIDTH, _WIDTH)
_INPUTS = (_WIDTH, _WIDTH, _WIDTH, 4 * _WIDTH)
MEASURED = Situation.of(
    ModelShape(
        (
            *(ParameterShape("adapter", (outputs, _RANK), _NUM_BLOCKS) for outputs in _OUTPUTS),
            *(ParameterShape("adapter", (_RANK, inputs), _NUM_BLOCKS) for inputs in _INPUTS),
        )
    ),
    batch_size=32,
    num_steps=40,
    workload="huggingface",
)
"""The adapters of the linear layers of a GPT-2 of two blocks, and their training."""
LEARNING_RATES = {"shampoo": 0.016, "lora-rite": 0.004}
"""The best of the grid there, by optimizer, that of the least loss first."""
NO_DECAY = "no weight decay on the factors of an adapter, as LoRA (arXiv:2106.09685) has none"
NO_SEARCH = "a grid of learning rates in one training of 40 steps, all else as the optimizer has it"
WITH_DDP = "lora-rite steps whole pairs, so on several ranks with ddp"


def begun_for_adapters() -> tuple[TransferCandidate, ...]:
    """The configs to begin a training of adapters with, before they are moved to it."""
    return tuple(_begun(name, lr) for name, lr in LEARNING_RATES.items())


def _begun(name: str, lr: float) -> TransferCandidate:
    return TransferCandidate(
        TunedConfig(name, {"lr": lr, "weight_decay": 0.0}, {"decay": "cosine", "warmup_fraction": 0.05}),
        Source(SourceKind.ADAPTERS, f"{name} on low-rank adapters of a small GPT-2"),
        MEASURED,
        remarks=(NO_SEARCH, NO_DECAY, *([WITH_DDP] if name == "lora-rite" else [])),
    )
