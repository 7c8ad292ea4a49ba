"""The signs that another rank is gone, in the errors of torch in a collective that the other did not join."""

from __future__ import annotations

import torch.distributed as dist

from trainers.workload.user_workload import text_of

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
"""Words of gloo and NCCL. Gloo's errors are plain RuntimeErrors with a text alone, and NCCL's class for them
(`DistBackendError`) is that of all its errors, a device without memory among them."""


def is_of_a_lost_rank(error: BaseException) -> bool:
    """True if a collective failed because another rank ended, or did not answer within the group's timeout, or if it
    did not come to the group at all.

    The error itself says nothing of the cause: the other rank's own end does, if it left one.
    """
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and all(cause is not seen for seen in chain):  # `raise error from error` is a circle
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    return any(
        isinstance(seen, dist.DistNetworkError | dist.DistStoreError)
        or (isinstance(seen, RuntimeError) and any(sign in text_of(seen).lower() for sign in _SIGNS))
        for seen in chain
    )
