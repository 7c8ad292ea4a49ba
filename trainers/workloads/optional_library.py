"""Libraries that only some workloads need, and that an extra of this package installs."""

from __future__ import annotations

import importlib
from typing import Any

from trainers.installation.distribution import needs


def optional_library(module: str, *, extra: str, purpose: str) -> Any:
    """The module, imported.

    Raises:
        ValueError: its library is not installed; the message names the purpose and the extra that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{purpose} {needs(module.partition('.')[0], extra=extra)}") from error
