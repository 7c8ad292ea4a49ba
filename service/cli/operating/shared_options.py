"""Options that several commands have in common, each set declared once, as a dataclass."""

from __future__ import annotations

import functools
import inspect
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes, in place of each parameter that is a dataclass, that dataclass's fields as options."""
    hints = get_type_hints(command, include_extras=True)
    shared = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(command).parameters.items()
        if name not in shared
    ]
    for options in shared.values():
        of_fields = get_type_hints(options, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=of_fields[field.name]
            )
            for field in fields(options)
        ]

    @functools.wraps(command)
    def taking_all(**given: Any) -> None:
        whole = {
            name: options(**{field.name: given.pop(field.name) for field in fields(options)})
            for name, options in shared.items()
        }
        command(**given, **whole)

    taking_all.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(taking_all)["__signature__"] = inspect.Signature(parameters)
    return taking_all
