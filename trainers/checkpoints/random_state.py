"""The state of a rank's random generators, as tensors and plain values.

They are torch's, CUDA's, Python's and, where it is installed, numpy's.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from trainers.ranks.context import RankContext

try:
    import numpy as np
except ModuleNotFoundError:  # torch does without it, and then nothing draws from its generator
    np = None  # type: ignore[assignment]


def seed_random(seed: int) -> None:
    """Seeds all global generators that a rank's training may draw from; any integer >= 0."""
    torch.manual_seed(seed % 2**64)  # CUDA's as well
    random.seed(seed)
    if np is not None:
        np.random.seed(seed % 2**32)


def random_state(context: RankContext) -> dict[str, Any]:
    """The state of all global generators that this rank's training may draw from."""
    version, internal, gauss_next = random.getstate()
    state = {
        "torch": torch.get_rng_state(),
        "python": {"version": version, "internal": torch.tensor(internal), "gauss_next": gauss_next},
    }
    if np is not None:
        state["numpy"] = _without_arrays(np.random.get_state(legacy=False))
    if context.device.startswith("cuda"):
        state["cuda"] = torch.cuda.get_rng_state(context.device)
    return state


def set_random_state(state: dict[str, Any], context: RankContext) -> None:
    """Puts the generators into a state that `random_state` gave, here or where numpy was, or was not, installed."""
    torch.set_rng_state(state["torch"])
    python = state["python"]
    random.setstate((python["version"], tuple(python["internal"].tolist()), python["gauss_next"]))
    if np is not None and "numpy" in state:
        np.random.set_state(_with_arrays(state["numpy"]))
    if "cuda" in state and context.device.startswith("cuda"):
        torch.cuda.set_rng_state(state["cuda"], context.device)


def _without_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_arrays(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    return value.item() if isinstance(value, np.generic) else value


def _with_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_arrays(entry) for key, entry in value.items()}
    return value.numpy() if isinstance(value, torch.Tensor) else value
