"""Reads a job from a YAML or JSON file, and applies settings of the command line to it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

import yaml

from service.errors import InvalidInput
from trainers.config import InvalidConfig
from trainers.dotted import set_at


class _Loader(yaml.SafeLoader):
    """YAML whose scalars are JSON's, and whose keys are unique.

    PyYAML follows YAML 1.1, where `1e-4` is text, `no` is false and `2026-01-01` a date.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                line = node.value[index][0].start_mark.line + 1
                raise yaml.MarkedYAMLError(problem=f"{key!r} is given twice (line {line})")
        return super().construct_mapping(node, deep)


for _tag, _pattern, _first in (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", list("tf")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    """YAML 1.1 reads a leading zero as octal."""
    return int(str(loader.construct_scalar(node)))


_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def read_job_file(path: Path) -> dict[str, Any]:
    """The content of a YAML (or JSON, which is YAML) file.

    Raises:
        InvalidInput: it cannot be read, or does not hold an object.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(str(path), getattr(error, "strerror", None) or str(error)) from error
    content = _parse(str(path), text)
    if not isinstance(content, dict):
        raise InvalidInput(str(path), f"must hold an object with a `workload`, got {content!r:.100}")
    return content


def apply_settings(content: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of `content` with settings like `budget.num_trials=8` applied; values are YAML.

    Raises:
        InvalidInput: a setting has no `=`, or its path leads through something that is no object.
    """
    result: dict[str, Any] = _copy(content)
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator:
            raise InvalidInput(setting, "must be FIELD=VALUE, e.g. budget.num_trials=8")
        try:
            set_at(result, path, _parse(path, text))
        except InvalidConfig as error:
            raise InvalidInput(error.field, error.message) from error
    return result


def read_values(settings: Sequence[str]) -> dict[str, Any]:
    """Values by name from settings like `betas[0]=0.9`, whose names are no paths; values are YAML.

    Raises:
        InvalidInput: a setting has no name or no `=`, or names one twice.
    """
    values: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator or not name:
            raise InvalidInput(setting, "must be NAME=VALUE, e.g. lr=0.01")
        if name in values:
            raise InvalidInput(setting, f"{name} is given twice")
        values[name] = _parse(name, text)
    return values


def _parse(source: str, text: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(source, " ".join(str(error).split())) from error


def _copy(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _copy(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_copy(value) for value in node]
    return node


def with_code(content: dict[str, Any], sha256: str) -> dict[str, Any]:
    """A copy of `content` that names code by its hash; what else its `code` says stays.

    Raises:
        InvalidInput: its `code` is no object.
    """
    own = content.get("code") or {}
    if not isinstance(own, dict):
        raise InvalidInput("code", f"must be an object, got {own!r:.100}")
    return {**content, "code": {**own, "sha256": sha256}}
