"""The registry of workloads: from a name to a description, and from name and options to a workload that is built.

Descriptions are plain values, so that the API can list and check workloads without importing torch; the implementation
is imported by `load`, where training happens.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Any, cast

from search_spaces.nearest import did_you_mean
from trainers.config import InvalidConfig, Json
from trainers.data.roots import DataRoots
from trainers.installation.extras import needs
from trainers.workload.description import WorkloadDescription
from trainers.workload.protocol import Workload
from trainers.workload.user_workload import description_of, explain, import_class, is_reference, printable, problems_of
from trainers.workloads.clicks import description as clicks
from trainers.workloads.digits import description as digits
from trainers.workloads.huggingface import description as huggingface
from trainers.workloads.images import description as images
from trainers.workloads.language import description as language
from trainers.workloads.options import OptionRefused
from trainers.workloads.paths import problems_of_paths, refused_paths

ENTRY_POINT_GROUP = "shampoo_tuner.workloads"

BUILT_IN: Mapping[str, WorkloadDescription] = {
    description.name: description
    for family in (digits, language, images, clicks, huggingface)
    for description in family.DESCRIPTIONS
}
"""The workloads of this package; installed ones are found by their entry points."""


class UnknownWorkload(InvalidConfig):
    """No workload of that name is registered."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            "workload",
            f"unknown workload {name!r} (known: {', '.join(known)}; or your own as module:Class)"
            f"{did_you_mean(name, known)}",
        )
        self.name = name
        self.known = tuple(known)

    def __reduce__(self) -> tuple[type[UnknownWorkload], tuple[str, tuple[str, ...]]]:  # type: ignore[override]
        return type(self), (self.name, self.known)


def descriptions() -> dict[str, WorkloadDescription]:
    """Every workload that has a name of its own: the built-in ones and those of installed packages.

    A package registers a workload with an entry point in the group `shampoo_tuner.workloads` that names its class, or
    a `WorkloadDescription` in a module that does not import torch.

    Raises:
        InvalidConfig: an entry point names neither.
    """
    found = dict(BUILT_IN)
    for entry_point in entry_points():
        description = description_from(entry_point)
        found.setdefault(description.name, description)
    return found


def describe(name: str) -> WorkloadDescription:
    """The description of the workload `name`: a registered one, or a user's own class as `module:Class`.

    Raises:
        UnknownWorkload: there is none; the message lists those there are.
        InvalidConfig: `module:Class` cannot be imported, or does not describe itself.
    """
    return _find(name).description


def entry_points() -> tuple[EntryPoint, ...]:
    """Entry points of installed packages that name workloads; nothing of theirs is imported."""
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))


def description_from(entry_point: EntryPoint) -> WorkloadDescription:
    """The description that an entry point names, which is imported for it. A class is called by the entry point's name.

    Raises:
        InvalidConfig: it cannot be imported, names no `WorkloadDescription` and no class that describes itself, or is
            described wrongly.
    """
    try:
        found = entry_point.load()
    except (Exception, SystemExit) as error:  # the boundary to a user's own code
        raise InvalidConfig("workload", f"{entry_point.value} cannot be imported: {explain(error)}") from error
    if isinstance(found, WorkloadDescription):
        if problems := problems_of(found):
            raise InvalidConfig("workload", f"{entry_point.value} is described wrongly: {'; '.join(problems)}")
        return found
    if isinstance(found, type):
        return replace(description_of(found, name=entry_point.name), implementation=entry_point.value)
    raise InvalidConfig(
        "workload",
        f"entry point {entry_point.name} = {entry_point.value} must name a class or a WorkloadDescription, "
        f"got {found!r:.80}",
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """A workload by its name."""

    description: WorkloadDescription
    has_own_defaults: bool
    """True if the defaults are those of the constructor, and not only of the description."""


def _find(name: str) -> _Found:
    if name in BUILT_IN:
        return _Found(BUILT_IN[name], has_own_defaults=False)
    if is_reference(name):
        return _Found(description_of(import_class(name), name=name), has_own_defaults=True)
    installed = entry_points()
    for entry_point in sorted(installed, key=lambda entry_point: entry_point.name != name):
        try:
            description = description_from(entry_point)
        except InvalidConfig:
            if entry_point.name == name:
                raise
            continue  # another package's trouble
        if description.name == name:
            return _Found(description, has_own_defaults=isinstance(entry_point.load(), type))
    raise UnknownWorkload(name, sorted({*BUILT_IN, *(entry_point.name for entry_point in installed)}))


def check_options(description: WorkloadDescription, options: Mapping[str, Json]) -> None:
    """Checks the names of workload options and the kinds of their values, and that those required are there.

    Raises:
        InvalidConfig: the first of `refused_options`.
    """
    for refused in refused_options(description, options):
        raise refused


def refused_options(description: WorkloadDescription, options: Mapping[str, Json]) -> Iterator[InvalidConfig]:
    """An error for each option that the workload does not have, or whose value it does not take, and for each required
    one that is missing; the message names it."""
    for name, value in options.items():
        if name not in description.options:
            known = ", ".join(sorted(description.options)) or "none"
            yield InvalidConfig(
                f"workload_options.{name}",
                f"unknown option of {description.name} (known: {known}), got {value!r}"
                f"{did_you_mean(name, description.options)}",
            )
    for name, option in description.options.items():
        if option.required and options.get(name) is None:
            yield InvalidConfig(f"workload_options.{name}", f"is required by {description.name}: {option.description}")
        elif name in options and not option.takes(options[name]):
            got = printable(repr(options[name]), limit=100)
            yield InvalidConfig(
                f"workload_options.{name}", f"{description.name} takes {' or '.join(option.kinds)}, got {got}"
            )
        elif name in options and option.exceeded_by(options[name]):
            yield InvalidConfig(f"workload_options.{name}", f"must be at most {option.maximum}, got {options[name]}")


def load(name: str, options: Mapping[str, Json], *, data_roots: DataRoots | None = None) -> Workload:
    """Builds the workload `name`; data are loaded here.

    Args:
        data_roots: the directories that may be read; None: all that this process may.

    Raises:
        UnknownWorkload: no such workload.
        InvalidConfig: an option is unknown or has a value the workload refuses, a path is none of `data_roots`, there
            is nothing to read at a path, or `module:Class` cannot be imported, or a library is missing.
    """
    found = _find(name)
    description = found.description
    check_options(description, options)
    if data_roots is not None:
        _check_paths(description, options, data_roots)
    defaults = {} if found.has_own_defaults else {o: spec.default for o, spec in description.options.items()}
    implementation = _implementation(description)
    try:
        return cast("Workload", implementation(**{**defaults, **options}))
    except OptionRefused as error:
        raise InvalidConfig(f"workload_options.{error.option}", str(error)) from error
    except (ValueError, OSError) as error:
        for option, problem in problems_of_paths(description, options):
            raise InvalidConfig(f"workload_options.{option}", f"{problem} ({name} says: {error})") from error
        if isinstance(error, OSError):
            raise
        raise InvalidConfig("workload_options", f"refused by {name}: {error}") from error


def check_data_roots(name: str, options: Mapping[str, Json], data_roots: DataRoots) -> None:
    """Checks that the paths among the options of the workload `name` may be read.

    Raises:
        InvalidConfig: one may not; or as `describe`.
    """
    _check_paths(describe(name), options, data_roots)


def _check_paths(description: WorkloadDescription, options: Mapping[str, Json], data_roots: DataRoots) -> None:
    for option, refusal in refused_paths(description, options, data_roots):
        raise InvalidConfig(f"workload_options.{option}", refusal)


def _implementation(description: WorkloadDescription) -> type[Any]:
    """The class of a workload. Raises: InvalidConfig: it cannot be imported, e.g. for want of a library."""
    try:
        return import_class(description.implementation)
    except InvalidConfig as error:
        missing = error.__cause__
        if description.extra is None or not isinstance(missing, ModuleNotFoundError):
            raise
        raise InvalidConfig(
            "workload", f"{description.name} {needs(str(missing.name), extra=description.extra)}"
        ) from error
