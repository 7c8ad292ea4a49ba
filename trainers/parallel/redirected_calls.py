"""Calls of a model that lead through another module, e.g. its replica: whoever has the model has it whole, with its
own attributes and methods."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch
from torch import nn


class RedirectedCalls:
    """While it is entered, a call of the model is one of another module, which may call the model in its turn.

    The model's class becomes a subclass of what it was. Copies and slices of the model have that class, too, and are
    called as ever.
    """

    def __init__(self, model: nn.Module, to: nn.Module) -> None:
        self.has_trained = False
        """The model has been called with gradients since this was entered."""
        self._model = model
        self._plain = cls = type(model)

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if module is not model:
                return cls.__call__(module, *args, **kwargs)
            self.has_trained |= torch.is_grad_enabled()
            _set_class(model, cls)
            try:
                return to(*args, **kwargs)
            finally:
                _set_class(model, self._redirected)

        self._redirected = type(cls.__name__, (cls,), {"__call__": call, "__module__": cls.__module__})

    def __enter__(self) -> RedirectedCalls:
        self.has_trained = False
        _set_class(self._model, self._redirected)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _set_class(self._model, self._plain)


def _set_class(model: nn.Module, cls: type[nn.Module]) -> None:
    # Some modules pass what they are given on to the one inside them, as those of `torch.compile` do.
    object.__setattr__(model, "__class__", cls)
