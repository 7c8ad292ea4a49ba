"""The command `shampoo-tuner`, as far as torch alone is enough for it: it says what else to install."""

from __future__ import annotations

import importlib
import sys

from trainers.installation.distribution import PACKAGES, ForeignPackage, check_packages, refuse
from trainers.installation.extras import SERVICE_EXTRA, MissingExtra, needing

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def main() -> None:
    """The console script. Exit status 2: the installation lacks something, or another project's package is in the way,
    or this is Windows; 130: it was interrupted.

    Raises:
        ModuleNotFoundError: of a module that no extra would bring.
    """
    if sys.platform == "win32":
        refuse(
            ImportError("this command does not run on Windows; install it in WSL 2, the Linux that Windows can have")
        )
    try:
        check_packages(PACKAGES)
        # By name: the service needs this package, and must not be needed by it.
        with needing(SERVICE_EXTRA):
            importlib.import_module("service.cli.commands").main()
    except (ForeignPackage, MissingExtra) as error:
        refuse(error)
    except KeyboardInterrupt:  # while it imported: commands answer to their own
        sys.exit(INTERRUPTED)
