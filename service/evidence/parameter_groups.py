"""Parameters that trials gave settings of their own, which a config to paste does not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from search_spaces.optimizers import ARGUMENTS
from trainers.workload.description import ParameterGroup


@dataclass(frozen=True, slots=True)
class OwnSettings:
    """Settings that some parameters got in place of the optimizer's arguments."""

    parameters: str
    """These parameters, in words."""
    settings: dict[str, JsonValue] | None
    """Arguments of the optimizer; None: only the workload's class knows them."""

    @property
    def words(self) -> str:
        """Both in words."""
        if self.settings is None:
            return self.parameters
        return f"{self.parameters}: {', '.join(f'{name}={value!r}' for name, value in self.settings.items())}"


def own_settings(
    groups: Sequence[ParameterGroup], *, optimizer: str, arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> list[OwnSettings]:
    """Settings that a trial gave to some parameters and its config does not say.

    Args:
        groups: of the workload's description.
        optimizer: its name; a setting that it has no argument for was left out.
        arguments: those of the config; a setting that they have, too, makes no difference.
        options: of the workload.
    """
    known = ARGUMENTS[optimizer]
    found: list[OwnSettings] = []
    for group in groups:
        if group.settings is None:
            found.append(OwnSettings(group.parameters, None))
        elif group.unless is None or not options.get(group.unless):
            differing = {
                name: value
                for name, value in group.settings.items()
                if name in known and arguments.get(name, known[name].default) != value
            }
            found += [OwnSettings(group.parameters, differing)] if differing else []
    return found


def caveat(settings: Sequence[OwnSettings]) -> str:
    """Says that the config alone does not train as it was measured, and why."""
    told = "; ".join(one.words for one in settings)
    return f"The trials gave some parameters settings of their own, which the config and the Python lack: {told}."
