"""All that leans on private parts of Typer, as they are in Typer 0.29, and the reason for each.

A new release of Typer is checked here first.
"""

from __future__ import annotations

# Typer prints a completion only to a program of its own, or for `--show-completion`, which asks the shell that runs it.
from typer._completion_shared import get_completion_script as get_completion_script
