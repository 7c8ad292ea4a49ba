"""The signs that another rank is gone, in the errors of torch in a collective that the other did not join."""

from __future__ import annotations

import torch.distributed as dist

_SIGNS = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "connection refused",
    "timed out waiting",  # gloo: the other hangs, or its machine is gone
    "application timeout caused pair closure",  # likewise
    "socket timeout",
    "nccl communicator was aborted",
    "watchdog caught collective operation timeout",
)
"""Words of gloo and NCCL; they have no class of their own for it."""


def is_of_a_lost_rank(error: BaseException) -> bool:
    """True if a collective failed because another rank ended, or did not answer within the group's timeout.

    The error itself says nothing of the cause: the other rank's own end does, if it left one.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, dist.DistNetworkError):
            return True
        if isinstance(seen, RuntimeError) and any(sign in str(seen).lower() for sign in _SIGNS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
