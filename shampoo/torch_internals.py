"""All uses of private parts of torch, as they are in torch 2.11 to 2.13, and the reason for each.

Check here first for a new release of torch. Not here, because torch calls them on the object by name: the methods
`__create_write_items__`, `__create_chunk_list__` and `__get_tensor_shard__` of `BlockRows`, which are the protocol
`torch.distributed._checkpointable._Checkpointable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

T = TypeVar("T", bound=Tensor)

# Operations on lists of tensors, which torch.optim uses: one kernel, or one call into C++, for a whole list. Releases
# after 2.13 should have them as the public `torch.foreach`.
foreach_add_ = torch._foreach_add_
foreach_copy_ = torch._foreach_copy_
foreach_lerp = torch._foreach_lerp
foreach_lerp_ = torch._foreach_lerp_
foreach_mul_ = torch._foreach_mul_
foreach_norm = torch._foreach_norm
foreach_sub = torch._foreach_sub
foreach_sub_ = torch._foreach_sub_

# The kernels of `torch.optim.Adam(fused=True)` and AdamW: one pass over gradient and moments, instead of many
# operations.
fused_adam_ = torch._fused_adam_
fused_adamw_ = torch._fused_adamw_
FUSED_ADAM_DEVICES = frozenset({"cpu", "cuda", "meta"})
"""Types of device that have them, in all of these releases."""

# The file of the extension module. It is linked to the libraries that PyTorch computes with, so their functions are
# found through it: the libraries' names and places differ in every distribution.
EXTENSION_FILE: str = torch._C.__file__

# `Tensor.to`, as a subclass receives it.
to_copy = torch.ops.aten._to_copy.default


def waited_for(tensor: Tensor) -> Tensor:
    """The tensor itself, if this is the wrapper of an autograd collective that waits for its values when it is first
    used.

    `DTensor.to_local()` returns such wrappers.
    """
    # Not at the top: it imports torch.distributed, which takes half a second.
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    return tensor.wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


def is_flattened(param: Tensor) -> bool:
    """True for a part of the vector that `FullyShardedDataParallel` makes of all parameters: the matrices are gone."""
    # The mark of `torch.distributed.fsdp`, read in the same way there.
    return getattr(param, "_fsdp_flattened", False) and param.dim() < 2


def without_storage(cls: type[T], shape: torch.Size, like: Tensor) -> T:
    """A tensor of a subclass that has a shape, and dtype and device of `like`, and no memory.

    This is the only way to get one: `torch.Tensor.__new__` allocates.
    """
    return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device)


# `Optimizer` registers hooks, and calls them only in its own `state_dict` and `load_state_dict`: a class that overrides
# these has to call the hooks.


def before_saving(optimizer: Optimizer) -> None:
    """Calls the hooks of `register_state_dict_pre_hook`."""
    for hook in optimizer._optimizer_state_dict_pre_hooks.values():
        hook(optimizer)


def after_saving(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The state as `register_state_dict_post_hook`'s hooks leave it."""
    for hook in optimizer._optimizer_state_dict_post_hooks.values():
        replaced = hook(optimizer, state_dict)
        state_dict = state_dict if replaced is None else replaced
    return state_dict


def before_loading(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """The state as `register_load_state_dict_pre_hook`'s hooks leave it; they write to a shallow copy.

    Raises:
        TypeError: it is not a state but, for example, a file's path.
    """
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"an optimizer's state is a dictionary, as torch.load(FILE) reads it, got {state_dict!r:.100}")
    state_dict = dict(state_dict)
    for hook in optimizer._optimizer_load_state_dict_pre_hooks.values():
        replaced = hook(optimizer, state_dict)
        state_dict = state_dict if replaced is None else replaced
    return state_dict


def after_loading(optimizer: Optimizer) -> None:
    """Calls the hooks of `register_load_state_dict_post_hook`."""
    for hook in optimizer._optimizer_load_state_dict_post_hooks.values():
        hook(optimizer)
