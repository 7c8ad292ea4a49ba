"""`torch.compile` for trials that follow each other in one process: what one compiled, the next of its kind reuses.

Dynamo keeps compiled variants with the code object that was compiled, and gives up, silently, after eight of one. All
trials run the same few code objects, with models of ever other shapes. So each kind of module gets a code object of its
own, and when there are too many kinds, all are forgotten.
"""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

MAX_NUM_KINDS = 32
"""Kinds of modules that are kept compiled. One of a small transformer takes a few megabytes on the host."""

_numbers = itertools.count()


class CompiledModel(nn.Module):
    """Calls a model as compiled code; the model itself, called directly, is not compiled."""

    def __init__(self, model: nn.Module, *, kind: str) -> None:
        """`kind` says all that the compiled code depends on beside the model's printed form: the shapes of the input,
        the precision, the workload's options."""
        super().__init__()
        self.model = model
        self._compiled = _compiled(_call_model, f"{kind} {model!r}")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(self.model, *args, **kwargs)


def compile_blocks(blocks: Iterable[nn.Module], *, kind: str) -> None:
    """Compiles the forward method of each block on its own; hooks around it are not compiled.

    Blocks that print alike share compiled code. Names of modules and parameters stay; a block's class becomes a
    subclass of what it was.
    """
    for block in blocks:
        block.__class__ = _compiled_class(type(block), f"{kind} {block!r}")  # type: ignore[arg-type]  # hashable


def run_uncompiled() -> AbstractContextManager[None]:
    """Inside it, compiled code is not used, and nothing is compiled."""
    stance: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
    return stance


def forget_compiled_code() -> None:
    """Frees what has been compiled in this process. Models that are still in use are compiled again when called."""
    if _compiled_kind.cache_info().currsize > 0:  # else it would load the compiler, which takes a second
        torch.compiler.reset()
        _compiled_class.cache_clear()
        _compiled_kind.cache_clear()


def _call_model(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return model(*args, **kwargs)


def _call_forward(forward: Callable[..., Any], module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return forward(module, *args, **kwargs)


def _compiled(function: Callable[..., Any], kind: str) -> Callable[..., Any]:
    found = _compiled_kind(function, kind)
    if _compiled_kind.cache_info().currsize > MAX_NUM_KINDS:
        forget_compiled_code()
        found = _compiled_kind(function, kind)
    return found


@functools.cache
def _compiled_kind(function: Callable[..., Any], kind: str) -> Callable[..., Any]:  # noqa: ARG001  # the cache's key
    """The function compiled, with a code object of its own for each kind."""
    # The name too: by file, line and name dynamo remembers which sizes have varied, and makes those dynamic.
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    compiled: Callable[..., Any] = torch.compile(types.FunctionType(code, function.__globals__))
    return compiled


@functools.cache
def _compiled_class(cls: type[nn.Module], kind: str) -> type[nn.Module]:
    compiled = _compiled(_call_forward, kind)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return compiled(cls.forward, self, *args, **kwargs)

    return type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__})
