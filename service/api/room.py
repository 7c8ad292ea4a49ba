"""The room on the disks of the service, as whatever tells why jobs wait asks for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import Depends

from service.api.dependencies import DataAreHere, SettingsDependency
from service.monitoring.room import why_no_room


async def _why_no_room(settings: SettingsDependency, data_are_here: DataAreHere) -> Callable[[], str | None]:
    return partial(why_no_room, settings, data_are_here=data_are_here)


WhyNoRoom = Annotated[Callable[[], str | None], Depends(_why_no_room)]
"""Looks at the disks when it is called."""
