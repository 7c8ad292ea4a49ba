"""Text that follows from the declarations of Shampoo's hyperparameters: `python -m tests.support.shampoo.generate`.

Writes the keyword arguments of `Shampoo`, which users, editors and type checkers read; their `help`; the table of
values that a search may set and the rule for a first learning rate, which the API reads without importing torch; and
the table of the manual. `tests/shampoo/test_hyperparameters.py` and `tests/search_spaces/test_optimizers.py` compare
them with the declarations.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from shampoo import hyperparameters, optimizer
from shampoo.declarations import Declaration, Kind, Range
from shampoo.hyperparameters import DECLARATIONS
from shampoo.starting_values import (
    HIGHER_IN_SHORT_RUNS,
    LARGEST_LR,
    LARGEST_SHORT_LR,
    LR_OF_ONE_STEP,
    SHORT_LR_OF_ONE_STEP,
    starting_lr,
)

CONSTRUCTOR = Path(optimizer.__file__)
# Not imported: the presets are checked against the table that this writes.
TABLE = CONSTRUCTOR.parent.parent / "search_spaces" / "shampoo_arguments.py"
MANUAL = CONSTRUCTOR.with_name("README.md")
HELP = CONSTRUCTOR.with_name("argument_docs.py")
_MANUAL_HEAD = "| | default | used by | what it does |\n|---|---|---|---|\n"


def keyword_arguments() -> dict[str, str]:
    """The annotation of every keyword argument of `Shampoo`, by name: the type of the hyperparameter."""
    body = _class(Path(hyperparameters.__file__), "Hyperparameters").body
    fields = [node for node in body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(field.target): _type_of(field.annotation) for field in fields}


def manual_table() -> str:
    """The table of the manual: for each hyperparameter its default, the members that use it, and the first sentence of
    its prose with the meaning of None."""
    prose = _prose()
    rows: list[str] = []
    for name, one in DECLARATIONS.items():
        members = [member for member in DECLARATIONS["preconditioner"].choices if member in _users(name)]
        default = f'"{one.default}"' if isinstance(one.default, str) else repr(one.default)
        first, *others = prose[name].removesuffix(".").split(". ")
        said = ". ".join([first, *(sentence for sentence in others if sentence.startswith("None: "))])
        rows.append(f"| `{name}` | `{default}` | {', '.join(members) or 'all'} | {said} |\n")
    return _MANUAL_HEAD + "".join(rows)


def help_module() -> str:
    """The module with the docstring of the constructor: all prose of each hyperparameter, for the members that use it.

    Written to a file because the docstrings of fields do not exist at run time.
    """
    entries = {"params": "Parameters, pairs of a name and one, or groups: dicts of `params` and what differs there."}
    for name, text in _prose().items():
        members = [member for member in DECLARATIONS["preconditioner"].choices if member in _users(name)]
        entries[name] = f"{text} Used by {', '.join(members)}." if members else text
    wrapped = [
        "\n".join(textwrap.wrap(f"{name}: {text}", 116, initial_indent=" " * 4, subsequent_indent=" " * 8))
        for name, text in entries.items()
    ]
    lines = "\n".join(wrapped)
    return f'''"""The help of `Shampoo`'s constructor: the meaning of its arguments, as hyperparameters are declared.

Written by `python -m tests.support.shampoo.generate` from `shampoo/hyperparameters.py`: change them there.
"""

from __future__ import annotations

ARGUMENTS = """Allocates the state of the parameters.

Args:
{lines}
"""
'''


def write() -> None:
    """Writes all four."""
    TABLE.write_text(table())
    HELP.write_text(help_module())
    CONSTRUCTOR.write_text(_with_arguments())
    before, rest = MANUAL.read_text().split(_MANUAL_HEAD)
    after = rest[re.match(r"(\|.*\n)*", rest).end() :]  # type: ignore[union-attr]  # as it may be empty, it matches
    MANUAL.write_text(before + manual_table() + after)
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", TABLE, CONSTRUCTOR, HELP], check=True)


def table() -> str:
    """The module with the table of values that a search may set."""
    entries = "".join(f'    "{name}": {_argument(one)},\n' for name, one in DECLARATIONS.items())
    in_flight = "".join(f'        "{name}",\n' for name, one in DECLARATIONS.items() if one.in_flight)
    members = ", ".join(f'"{name}"' for name in sorted(HIGHER_IN_SHORT_RUNS))
    return f'''"""The arguments of `shampoo.Shampoo`, as its hyperparameters are declared.

Written by `python -m tests.support.shampoo.generate` from `shampoo/hyperparameters.py` and, what comes last, from
`shampoo/starting_values.py`: change them there.
"""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.arguments import LARGEST_INTEGER, Argument

SHAMPOO: Mapping[str, Argument] = {{
{entries}}}

SHAMPOO_IN_FLIGHT = frozenset(
    {{
{in_flight}    }}
)
"""Numbers that may change between two steps of a training run; see `search_spaces.optimizers.IN_FLIGHT`."""

LR_OF_ONE_STEP = {LR_OF_ONE_STEP}
LARGEST_LR = {LARGEST_LR}
SHORT_LR_OF_ONE_STEP = {SHORT_LR_OF_ONE_STEP}
LARGEST_SHORT_LR = {LARGEST_SHORT_LR}
HIGHER_IN_SHORT_RUNS = frozenset({{{members}}})
"""All are those of `shampoo.starting_values`, which says where they come from."""


{inspect.getsource(starting_lr)}'''


def _prose() -> dict[str, str]:
    """The docstring of every hyperparameter, by name, in one line."""
    body = _class(Path(hyperparameters.__file__), "Hyperparameters").body
    return {
        ast.unparse(field.target): " ".join(text.value.value.split())
        for field, text in itertools.pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _users(name: str) -> frozenset[str]:
    return DECLARATIONS[name].used_by or frozenset()


def _argument(declaration: Declaration) -> str:
    """The entry of a hyperparameter in the table."""
    given: list[str] = []
    if declaration.kind == "pair":
        first, second = (_call("float", _bounds(one)) for one in declaration.ranges)
        given.append(f"elements=({first}, {second})")
    elif declaration.ranges:
        given += _bounds(declaration.ranges[0])
    if declaration.kind == "integer":
        given.append("high=LARGEST_INTEGER")
    if declaration.choices:
        given.append(f"choices={declaration.choices}")
    if declaration.optional:
        given.append("optional=True")
    if declaration.default is not None:
        given.append(f"default={declaration.default!r}")
    return _call(declaration.kind, given)


def _call(kind: Kind, given: Sequence[str]) -> str:
    return f"Argument({', '.join([f'kind={kind!r}', *given])})"


def _bounds(allowed: Range) -> list[str]:
    bounds = {field.name: getattr(allowed, field.name) for field in dataclasses.fields(Range)}
    defaults = Range()
    return [f"{name}={value!r}" for name, value in bounds.items() if value != getattr(defaults, name)]


def _with_arguments() -> str:
    """The source of the optimizer with the keyword arguments of its constructor as they are declared."""
    cls = _class(CONSTRUCTOR, "Shampoo")
    (constructor,) = (node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    arguments = constructor.args.kwonlyargs
    first = arguments[0].lineno - 1
    defaults = [node for node in constructor.args.kw_defaults if node is not None]
    nodes: list[ast.arg | ast.expr] = [*arguments, *defaults]
    last = max(node.end_lineno or 0 for node in nodes)
    # The first hyperparameter is positional, as in torch's optimizers.
    _, *names = DECLARATIONS
    types = keyword_arguments()
    written = [f"        {name}: {types[name]} = {DECLARATIONS[name].default!r},\n" for name in names]
    lines = CONSTRUCTOR.read_text().splitlines(keepends=True)
    return "".join([*lines[:first], *written, *lines[last:]])


def _class(path: Path, name: str) -> ast.ClassDef:
    found = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name]
    return found[0]


def _type_of(annotation: ast.expr) -> str:
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        assert isinstance(annotation.slice, ast.Tuple)
        annotation = annotation.slice.elts[0]
    text = ast.unparse(annotation)
    if text == "tuple[float, float]":
        return "Sequence[float]"  # as JSON has it
    return f"hyperparameters.{text}" if text[0].isupper() else text


if __name__ == "__main__":
    write()
