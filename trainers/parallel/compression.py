"""Low-rank compression of the gradients that replicas exchange: PowerSGD (arXiv 1905.13727), as torch ships it.

A gradient of m x n elements is sent as (m + n) r numbers, if that is less; a gradient of one dimension, or whose rank-r
approximation would be no smaller, is sent whole. A convolution's kernel counts as a matrix of `out_channels` rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainers.checkpoints import PerRank
from trainers.config import CompressionConfig, InvalidConfig
from trainers.installation.extras import needs


class GradientCompression:
    """The compressor of one trial: what it remembers from step to step, on this rank."""

    def __init__(self, config: CompressionConfig, *, seed: int) -> None:
        """Nothing is compressed yet.

        Raises:
            InvalidConfig: NumPy is not installed, which torch's PowerSGD draws from.
        """
        if find_spec("numpy") is None:
            raise InvalidConfig("compression", needs("numpy", extra="compression"))
        self._state = PowerSGDState(
            process_group=None,
            matrix_approximation_rank=config.rank,
            start_powerSGD_iter=config.start_step,
            min_compression_rate=1,  # whatever is smaller compressed
            use_error_feedback=config.error_feedback,
            random_seed=seed % 2**32,
        )
        # The first step is done before there is a replica (`trainers.parallel.ddp`).
        self._state.iter = 1

    def attach(self, replica: DistributedDataParallel) -> None:
        """Compresses what the replica exchanges from now on. It counts steps, not backward passes: those that only
        accumulate exchange nothing."""
        replica.register_comm_hook(self._state, powerSGD_hook)

    @property
    def num_elements_sent(self) -> tuple[int, int]:
        """Elements that this rank gave to collectives in steps with compression, and how many there would have been
        without."""
        return self._state.total_numel_after_compression, self._state.total_numel_before_compression

    def state_dict(self) -> dict[str, Any]:
        """Matrices and counts are equal on all ranks; the errors are a rank's own."""
        state = self._state
        generator = state.rng.get_state(legacy=False)["state"]
        return {
            "num_steps": state.iter,
            "num_elements_sent": list(self.num_elements_sent),
            "rng": {"keys": torch.from_numpy(generator["key"].astype("int64")), "position": int(generator["pos"])},
            "p": _by_name(state.p_memory_dict),
            "q": _by_name(state.q_memory_dict),
            "errors": PerRank(_by_name(state.error_dict)),
        }

    def load_state_dict(self, saved: Mapping[str, Any], *, device: str) -> None:
        """Takes over a `state_dict()`. Errors saved at another world size are lost: they begin anew at 0."""
        state = self._state
        state.iter = saved["num_steps"]
        state.total_numel_after_compression, state.total_numel_before_compression = saved["num_elements_sent"]
        keys = saved["rng"]["keys"].numpy().astype("uint32")
        state.rng.set_state(("MT19937", keys, saved["rng"]["position"], 0, 0.0))
        state.p_memory_dict = _by_bucket(saved["p"], device)
        state.q_memory_dict = _by_bucket(saved["q"], device)
        errors = saved["errors"]
        state.error_dict = _by_bucket(errors.value if isinstance(errors, PerRank) else errors or {}, device)


def _by_name(tensors: Mapping[int, Tensor]) -> dict[str, Tensor]:
    """Checkpoints have strings for keys."""
    return {str(bucket): tensor for bucket, tensor in tensors.items()}


def _by_bucket(tensors: Mapping[str, Tensor], device: str) -> dict[int, Tensor]:
    return {int(bucket): tensor.to(device, copy=True) for bucket, tensor in tensors.items()}
