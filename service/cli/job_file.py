"""Reads a job from a YAML or JSON file or from standard input, and applies settings of the command line to it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from service.errors import InvalidInput
from trainers.arguments import set_at
from trainers.config import InvalidConfig


class _Loader(yaml.SafeLoader):
    """YAML whose scalars are JSON's, and whose keys are unique.

    PyYAML follows YAML 1.1, where `1e-4` is text, `no` is false and `2026-01-01` a date.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's attribute

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for index, key in enumerate(keys):
            if key in keys[:index]:
                mark = node.value[index][0].start_mark
                raise yaml.MarkedYAMLError(problem=f"{key!r} is given twice", problem_mark=mark)
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


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A place in a file; the first line and the first column are 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job's file as it was read, once: standard input cannot be read again."""

    name: str
    """The name by which people are told of it."""
    content: dict[str, Any]
    _text: str

    def places(self) -> dict[str, FilePlace]:
        """The place of each value in the file, by its JSON Pointer."""
        found: dict[str, FilePlace] = {}

        def look(node: yaml.Node, pointer: str, mark: yaml.Mark) -> None:
            found[pointer] = FilePlace(mark.line + 1, mark.column + 1)
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    look(value, f"{pointer}/{_escaped(str(key.value))}", key.start_mark)
            elif isinstance(node, yaml.SequenceNode):
                for index, value in enumerate(node.value):
                    look(value, f"{pointer}/{index}", value.start_mark)

        root = yaml.compose(self._text, _Loader)
        assert root is not None, "it holds an object"
        look(root, "", root.start_mark)
        return found


def read_job_file(path: Path) -> JobFile:
    """A YAML (or JSON, which is YAML) file; `-`: what standard input has.

    Raises:
        InvalidInput: it cannot be read, or does not hold an object.
    """
    name, text = (_STDIN, _read_stdin()) if path == Path("-") else (str(path), _text(str(path), path.read_bytes))
    content = _parse(name, text)
    if not isinstance(content, dict):
        got = "it is empty" if content is None else f"got {content!r:.100}"
        hint = "`shampoo-tuner init WORKLOAD` writes one"
        raise InvalidInput(name, f"must hold an object with a `workload`, {got}; {hint}")
    return JobFile(name, content, text)


_TEXTS = ("name", "model", "notes")
"""Fields of a job that hold text, beside its tags."""
MAX_VALUES = 1_000_000
"""Values in a file, at most: more than any request may hold. Aliases of aliases make as many of a few lines."""
_NOTHING = ("", "~", "null")
_STDIN = "<stdin>"


def place_of(pointer: str, places: Mapping[str, FilePlace]) -> FilePlace | None:
    """The place of a value, or of the nearest object that is there and should have it."""
    while pointer and pointer not in places:
        pointer = pointer.rpartition("/")[0]
    return places.get(pointer) if pointer else None


def settings_touch(settings: Sequence[str], field: str) -> bool:
    """True if a setting has given a field, or something above or below it."""
    for setting in settings:
        path = setting.partition("=")[0]
        if f"{field}.".startswith((f"{path}.", f"{path}[")) or f"{path}.".startswith((f"{field}.", f"{field}[")):
            return True
    return False


def apply_settings(content: dict[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of `content` with settings like `budget.num_trials=8` applied; values are YAML, but for those of fields
    that hold text.

    Raises:
        InvalidInput: a setting has no `=`, or its path leads through something that is no object.
    """
    result: dict[str, Any] = _copy(content)
    for setting in settings:
        path, separator, text = setting.partition("=")
        if not separator:
            raise InvalidInput(setting, "must be FIELD=VALUE, e.g. budget.num_trials=8")
        try:
            set_at(result, path, _setting(path, text))
        except InvalidConfig as error:
            raise InvalidInput(error.field, error.message) from error
    return result


def _setting(path: str, text: str) -> Any:
    """The value of a setting. A field that holds text takes it as it stands, unless it is quoted or nothing."""
    holds_text = path in _TEXTS or path.startswith("tags.")
    return text if holds_text and text not in _NOTHING and text[0] not in "\"'" else _parse(path, text)


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


def _read_stdin() -> str:
    if sys.stdin is None:
        raise InvalidInput(_STDIN, "is closed: give the path of a file")
    return _text(_STDIN, sys.stdin.buffer.read)


def _text(source: str, read: Callable[[], bytes]) -> str:
    try:
        return read().decode("utf-8-sig")  # editors on Windows begin a file with a mark of its encoding
    except UnicodeDecodeError as error:
        raise InvalidInput(source, f"is no text: its byte {error.start + 1} is not UTF-8") from error
    except OSError as error:
        raise InvalidInput(source, error.strerror or str(error)) from error


def _escaped(name: str) -> str:
    """A name within a JSON Pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _words(error: Exception) -> str:
    """An error of the parser in one line, its place first."""
    words = " ".join(str(error).split())
    if isinstance(error, RecursionError):
        return "is nested too deeply, or has an alias within what it stands for"
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark) is not None and error.problem:
        is_tab = mark.buffer is not None and mark.buffer[mark.pointer : mark.pointer + 1] == "\t"
        problem = "a tab, where YAML wants spaces" if is_tab else error.problem
        return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
    return words


def _parse(source: str, text: str) -> Any:
    try:
        content = yaml.load(text, _Loader)
        num_values = _num_values(content, {})  # an alias within what it stands for has no end
        if num_values <= MAX_VALUES:
            return _copy(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(source, _words(error)) from error
    raise InvalidInput(source, f"holds more than {MAX_VALUES:,} values, each alias as often as it stands there")


def _num_values(node: Any, known: dict[int, int]) -> int:
    """The values in a value, itself included; what aliases share counts each time, and is looked through once.

    Args:
        known: numbers by the ids of what was looked through.
    """
    if not isinstance(node, dict | list):
        return 1
    if id(node) not in known:
        within = node.values() if isinstance(node, dict) else node
        known[id(node)] = 1 + sum(_num_values(value, known) for value in within)
    return known[id(node)]


def _copy(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _copy(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_copy(value) for value in node]
    return node


def read_requirements(path: Path) -> list[str]:
    """The requirements of a file as pip reads it, without comments and empty lines. An option is none.

    Raises:
        InvalidInput: it cannot be read, or has options of pip in it.
    """
    found = [line.partition(" #")[0].strip() for line in _text(str(path), path.read_bytes).splitlines()]
    found = [line for line in found if line and not line.startswith("#")]
    if option := next((line for line in found if line.startswith("-")), None):
        raise InvalidInput(str(path), f"{option!r:.100}: options of pip are for the machines' own settings")
    return found


def with_code(
    content: dict[str, Any], sha256: str | None = None, *, requirements: Sequence[str] | None = None
) -> dict[str, Any]:
    """A copy of `content` that names code by its hash, and what that requires; what else its `code` says stays.

    Args:
        requirements: None: those that it says itself.

    Raises:
        InvalidInput: its `code` is no object.
    """
    own = content.get("code") or {}
    if not isinstance(own, dict):
        raise InvalidInput("code", f"must be an object, got {own!r:.100}")
    own = own if sha256 is None else {**own, "sha256": sha256}
    own = own if requirements is None else {**own, "requirements": list(requirements)}
    return {**content, "code": own}
