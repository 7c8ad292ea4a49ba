"""The command `shampoo-tuner`, as far as torch alone is enough for it: it says what else to install."""

from __future__ import annotations

import importlib
import sys

from trainers.installation.distribution import (
    DISTRIBUTION,
    PACKAGES,
    SERVICE_EXTRA,
    ForeignPackage,
    MissingExtra,
    check_packages,
    missing_of,
)

REFUSED = 2


def main() -> None:
    """The console script. Exit status 2: the installation lacks something, or another project's package is in the way.

    Raises:
        ModuleNotFoundError: of a module that no extra would bring.
    """
    try:
        check_packages(PACKAGES)
        # By name: the service needs this package, and must not be needed by it.
        importlib.import_module("service.cli.commands").main()
    except (ForeignPackage, MissingExtra) as error:
        _refuse(str(error))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in PACKAGES:
            raise
        _refuse(str(MissingExtra(SERVICE_EXTRA, missing_of(SERVICE_EXTRA) or [error.name])))


def _refuse(message: str) -> None:
    sys.stderr.write(f"{DISTRIBUTION}: {message}\n")
    sys.exit(REFUSED)
