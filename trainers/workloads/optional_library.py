"""Libraries that only some workloads need, and that an extra of this package installs."""

from __future__ import annotations

import importlib
from typing import Any


def optional_library(module: str, *, extra: str, purpose: str) -> Any:
    """The module, imported.

    Raises:
        ValueError: its library is not installed; the message names the purpose and the extra that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        raise ValueError(
            f"{purpose} needs {library}, which is not installed: pip install 'shampoo-tuner[{extra}]'"
        ) from error
