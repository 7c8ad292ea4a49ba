"""A workload of a user's own, named `module:Class`: a class that carries its description as class attributes.

    class MyModel:
        title = "What it trains, on which data"
        metrics = {"validation_loss": "minimize"}      # those that `evaluate` gives; the loop adds `train_loss`
        default_objective = "validation_loss"
        default_num_steps = 200
        default_evaluate_every = 20
        default_batch_size = 64

        def __init__(self, *, width: Annotated[int, "units of the hidden layer"] = 64) -> None: ...

Its options are the constructor's parameters; one without default is required. An attribute `option_roles`, e.g.
`{"path": "path", "num_workers": "reading"}`, says which of them are not of the model, but of its data
(`trainers.workload.description.OptionRole`). Nothing here imports torch.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import traceback
import types
import typing
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from trainers.config import InvalidConfig, Json
from trainers.processes.job_code import import_from_job_code, modules_of_job_code
from trainers.workload.description import (
    MAX_METRIC_NAME,
    Direction,
    OptionRole,
    ParameterGroup,
    ValueKind,
    WorkloadDescription,
    WorkloadOption,
    is_metric_name,
)

MAX_REFERENCE_LENGTH = 200
"""Characters that the database keeps of a workload's name."""
MAX_ERROR_LENGTH = 500
"""Characters of an error that are shown: a few lines in a terminal or on a page."""

REFERENCE_PATTERN = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
"""A `module:Class` of ASCII letters, for a schema: no regular expression that every reader of one
understands has all of Python's names."""
_DEFAULT_NUMBERS = ("default_num_steps", "default_evaluate_every", "default_batch_size")
_ATTRIBUTES = ("title", "metrics", "default_objective", *_DEFAULT_NUMBERS)
_KINDS: Mapping[object, ValueKind] = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    type(None): "null",
}
_NOT_THEIRS = sys.stdlib_module_names | {"torch", "trainers", "service", "shampoo"}
"""Packages whose lines say nothing of where a user's code went wrong."""
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Names of the directories of installed packages."""
_KEYWORD_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def is_reference(name: str) -> bool:
    """True if a name is of the form `module:Class`, e.g. `my_package.models:MyModel`."""
    module_name, _, class_name = name.partition(":")
    parts = [*module_name.split("."), class_name]
    return len(name) <= MAX_REFERENCE_LENGTH and all(map(str.isidentifier, parts))


def import_class(reference: str) -> type[Any]:
    """The class that `module:Class` names, of the job's own code first. This runs the module's code.

    Raises:
        InvalidConfig: the module cannot be imported, for whatever reason, or has no such class.
    """
    module_name, _, class_name = reference.partition(":")
    class_name = unicodedata.normalize("NFKC", class_name)  # as Python does with the names in a module
    import_from_job_code()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the boundary to a user's own code
        raise InvalidConfig("workload", _why_not_imported(module_name, error)) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        what = "no class" if found is None else f"no class but {printable(repr(found), limit=80)}"
        raise InvalidConfig("workload", f"module {module_name} has {what} {class_name!r} {classes_of(module)}")
    return found


def classes_of(module: types.ModuleType) -> str:
    """The classes that a module defines, to follow what says that it lacks one."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, type)}
    own = ", ".join(sorted(name for name, value in found.items() if value.__module__ == module.__name__))
    return f"(its classes: {printable(own or '-', limit=200)})"


def description_of(cls: type[Any], *, name: str) -> WorkloadDescription:
    """The description that a class carries; `name` is what the workload is called.

    Raises:
        InvalidConfig: attributes are missing or impossible; the message names all of them.
    """
    reference = f"{cls.__module__}:{cls.__qualname__}"
    missing = [attribute for attribute in _ATTRIBUTES if not hasattr(cls, attribute)]
    if missing:
        raise InvalidConfig("workload", f"{reference} lacks the class attributes {', '.join(missing)}")
    metrics = cls.metrics
    if isinstance(metrics, Mapping):
        metrics = {"train_loss": "minimize", **metrics}
    description = WorkloadDescription(
        name=name,
        title=cls.title,
        implementation=name if is_reference(name) else reference,
        metrics=metrics,
        default_objective=cls.default_objective,
        default_num_steps=cls.default_num_steps,
        default_evaluate_every=cls.default_evaluate_every,
        default_batch_size=cls.default_batch_size,
        options=options_of(cls),
        parameter_groups=(ParameterGroup(f"as {reference}.parameter_groups says"),)
        if callable(getattr(cls, "parameter_groups", None))
        else (),
    )
    problems = problems_of(description)
    if problems:
        raise InvalidConfig("workload", f"{reference} is described wrongly: {'; '.join(problems)}")
    return description


def problems_of(description: WorkloadDescription) -> list[str]:
    """The faults of a description, each as a phrase that names the attribute and its value."""
    problems = []
    if not isinstance(description.title, str) or not description.title.strip():
        problems.append(f"title must be a text, got {description.title!r:.80}")
    metrics, directions = description.metrics, get_args(Direction)
    if not isinstance(metrics, Mapping) or not metrics:
        problems.append(f"metrics must be a dict of directions by name, got {metrics!r:.80}")
        metrics = {}
    for metric, direction in metrics.items():
        if not is_metric_name(metric):
            problems.append(
                f"metrics must have names of 1 to {MAX_METRIC_NAME} printable characters, got {metric!r:.80}"
            )
        if direction not in directions:
            problems.append(f"metrics[{metric!r}] must be {' or '.join(directions)}, got {direction!r:.80}")
    if metrics and description.default_objective not in metrics:
        known = ", ".join(map(str, metrics))
        problems.append(
            f"default_objective must be one of the metrics ({known}), got {description.default_objective!r}"
        )
    for attribute in _DEFAULT_NUMBERS:
        value = getattr(description, attribute)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            problems.append(f"{attribute} must be an integer >= 1, got {value!r:.80}")
    roles = get_args(OptionRole)
    for option, spec in description.options.items():
        if spec.role not in roles:
            problems.append(f"option_roles[{option!r}] must be one of {', '.join(roles)}, got {spec.role!r:.80}")
        if not _is_json(spec.default):
            problems.append(
                f"the default of option {option} must be JSON (text, number, list, ...), got {spec.default!r:.80}"
            )
    return problems


def options_of(cls: type[Any]) -> dict[str, WorkloadOption]:
    """The constructor's parameters; `*args` and `**kwargs` are none.

    What an option is for is taken from `Annotated[type, "what it is for"]`, with the annotation behind it; the words
    that it takes, from `Literal`.

    Raises:
        InvalidConfig: a parameter is positional-only, so that no option can be passed to it, or `option_roles` names
            what is no option.
    """
    options = {}
    roles = getattr(cls, "option_roles", {})
    if not isinstance(roles, Mapping) or not roles.keys() <= _parameters(cls).keys():
        raise InvalidConfig(
            "workload", f"option_roles of {cls.__name__} must be a dict of roles by option, got {roles!r:.200}"
        )
    hints = _type_hints(cls)
    for name, parameter in _parameters(cls).items():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            raise InvalidConfig("workload", f"parameter {name} of {cls.__name__} must not be positional-only")
        if parameter.kind in _KEYWORD_KINDS:
            required = parameter.default is inspect.Parameter.empty
            default = None if required else _as_json(parameter.default)
            annotation = hints.get(name, parameter.annotation)
            options[name] = WorkloadOption(
                default,
                _option_text(annotation),
                required=required,
                role=roles.get(name, "model"),
                choices=_choices_of(annotation),
                kinds=_kinds_of(annotation, default=parameter.default),
            )
    return options


def explain(error: BaseException) -> str:
    """An exception of a user's code in one printable line: its type, message, file and line."""
    if isinstance(error, SystemExit):
        what = f"it called sys.exit({error.code!r})"
    else:
        what = f"{type(error).__name__}: {text_of(error)}" if text_of(error) else type(error).__name__
    return printable(what, limit=MAX_ERROR_LENGTH) + place_of(error)


def text_of(error: BaseException) -> str:
    """An exception's message as text that UTF-8 has: its own code may fail, and lone surrogates become escapes."""
    try:
        return str(error).encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001 - the boundary to a user's own code
        return "(its message cannot be shown)"


def place_of(error: BaseException) -> str:
    """File and line of the user's code that led to an exception, to follow its text. What torch says of shapes that do
    not fit, for one, tells too little without; of an installed package only where no other code took part. Empty where
    there is none or the text names it; but an exception without a text has the line that raised it."""
    if isinstance(error, SyntaxError) and error.filename and not error.filename.startswith("<"):
        return ""
    walked = [
        # `__package__` tells what `__main__` is of.
        (
            str(frame.f_globals.get("__package__") or frame.f_globals.get("__name__")).partition(".")[0],
            Path(frame.f_code.co_filename),
            line,
        )
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith("<")
    ]
    theirs = [one for one in walked if one[0] not in _NOT_THEIRS]
    found = [one for one in theirs if _INSTALLED.isdisjoint(one[1].parts)] or theirs
    if not found and not text_of(error):
        found = walked
    return f" ({found[-1][1].name}, line {found[-1][2]})" if found else ""


def printable(text: str, *, limit: int) -> str:
    """The text on one line, cut to `limit` characters, with what cannot be printed as escapes."""
    line = " ".join(text.split())
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line[:limit])
    return shown if len(line) <= limit else f"{shown}..."


def _why_not_imported(module_name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{module_name}.".startswith(f"{error.name}."):
        sent = modules_of_job_code()
        if sent is None:
            return f"there is no module {error.name!r} among the installed packages and {Path.cwd()}"
        has = printable(", ".join(sent) or "no module", limit=200)
        there = f"the directory that was sent as the job's code (it has {has})"
        return f"there is no module {error.name!r} in {there}, among the installed packages or in {Path.cwd()}"
    return f"module {module_name} cannot be imported: {explain(error)}"


def _parameters(cls: type[Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(cls).parameters
    except ValueError:  # written in C
        return {}


def _type_hints(cls: type[Any]) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(cls.__init__, include_extras=True)
    except (NameError, TypeError, AttributeError):  # names that only a type checker imports
        return {}


def _choices_of(annotation: object) -> tuple[str, ...]:
    """The words of a `Literal`; empty: the annotation is none of words alone."""
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    words = get_args(kind) if get_origin(kind) is Literal else ()
    return words if all(isinstance(word, str) for word in words) else ()


def _kinds_of(annotation: object, *, default: object) -> tuple[ValueKind, ...]:
    """The kinds of values that an annotation made of `int`, `float`, `str`, `bool` and None allows; empty: it has
    others, or the default is of another kind, so that it cannot be relied on."""
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    parts = get_args(kind) if get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
    if not all(isinstance(part, type) and part in _KINDS for part in parts):
        return ()
    found = tuple(dict.fromkeys(_KINDS[part] for part in parts))
    if default is None and type(None) not in parts:
        return (*found, "null")  # as is often written
    is_known = default is inspect.Parameter.empty or type(default) in parts or (type(default) is int and float in parts)
    return found if is_known else ()


def _option_text(annotation: Any) -> str:
    notes: list[str] = []
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *metadata = get_args(annotation)
        notes = [note for note in metadata if isinstance(note, str)]
    if annotation is inspect.Parameter.empty:
        return ""
    kind = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return f"{notes[0]} ({kind})" if notes else kind


def _as_json(default: Any) -> Json:
    """The default as JSON has it; what JSON cannot hold stays as it is, and is refused with the description."""
    if isinstance(default, tuple):
        return [_as_json(part) for part in default]
    return typing.cast("Json", default)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True
