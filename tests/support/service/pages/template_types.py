"""The types of the values that pages pass to their templates, and the attributes that templates read.

Types come from the code: from the annotations of functions that a page calls, and of the attributes of its values.
Anything without annotation is unknown, and is not checked.
"""

from __future__ import annotations

import ast
import collections.abc
import functools
import importlib
import inspect
import operator
import pkgutil
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jinja2
from jinja2 import nodes

from service import dashboard
from service.dashboard.rendering import page

Variables = dict[str, Any]
"""Annotations by the name of a variable; None: unknown."""


def pages() -> Iterator[tuple[str, Variables]]:
    """Each template that a function of the dashboard renders, with the types of the variables that it gives."""
    for found in pkgutil.walk_packages(dashboard.__path__, f"{dashboard.__name__}."):
        module = importlib.import_module(found.name)
        for function in vars(module).values():
            if inspect.isfunction(function) and function.__module__ == module.__name__ and function is not page:
                yield from _Function(function).rendered()


class _Function:
    """A function's source, and the types of the expressions in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._names = function.__globals__
        self._types: Variables = _hints(function)
        self._tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        self._assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._assigned.setdefault(node.targets[0].id, []).append(node.value)
        for name, values in self._assigned.items():
            if name not in self._types:
                self._types[name] = self._type_of(values[0]) if len(values) == 1 else None

    def rendered(self) -> Iterator[tuple[str, Variables]]:
        for call in ast.walk(self._tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and len(call.args) > 2:
                _, template, given, *_ = call.args
                contents = self._assigned.get(given.id, []) if isinstance(given, ast.Name) else [given]
                name = template.value if isinstance(template, ast.Constant) else None
                if call.func.id in ("page", "live_parts") and isinstance(name, str):
                    for content in contents:
                        yield name, self._variables(content)

    def _variables(self, content: ast.expr) -> Variables:
        match content:
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._variables(left) | self._variables(right)
            case ast.Dict(keys=keys, values=values):
                return {
                    key.value: self._type_of(value)
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
        return {}  # of another function

    def _type_of(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(name):
                return self._types.get(name)
            case ast.IfExp(body=body, orelse=other):
                return _union(self._type_of(body), self._type_of(other))
            case ast.Constant(value):
                return type(value)
            case ast.Subscript(value=value) if not isinstance(node.slice, ast.Slice):
                return element_of(self._type_of(value))
            case ast.Attribute(value=value, attr=name):
                known = self._type_of(value)
                return None if known is None else attribute_of(known, name)
            case ast.ListComp(elt=element):
                known = self._type_of(element)
                return None if known is None else types.GenericAlias(list, (known,))
            case ast.DictComp(value=value):
                known = self._type_of(value)
                return None if known is None else types.GenericAlias(dict, (Any, known))
            case ast.Call(func=called):
                found = self._value_of(called)
                if isinstance(called, ast.Attribute) and inspect.isclass(kind := self._type_of(called.value)):
                    found = inspect.getattr_static(kind, called.attr, None)
                if inspect.isclass(found):
                    return found
                return _hints(found).get("return") if inspect.isfunction(found) else None
        return None

    def _value_of(self, node: ast.expr) -> Any:
        """The object of a name in the module, or in a module of it; None: there is none."""
        match node:
            case ast.Name(name) if name not in self._types:
                return self._names.get(name)
            case ast.Attribute(value=value, attr=name):
                found = self._value_of(value)
                return getattr(found, name, None) if inspect.ismodule(found) else None
        return None


MISSING = object()
"""In place of the type of an attribute that does not exist."""


def attribute_of(kind: Any, name: str) -> Any:
    """The type of an attribute; None: unknown; `MISSING`: none of the kinds that a value may have has it."""
    members = [one for one in _members(kind) if one is not types.NoneType]
    found = [_of_one(one, name) for one in members]
    known = [one for one in found if one is not MISSING]
    if not known:
        return MISSING if found else None
    return None if None in known else _union(*known)


def element_of(kind: Any) -> Any:
    """The type of a collection's elements; None: unknown."""
    members = [one for one in _members(kind) if one is not types.NoneType]
    if len(members) != 1:
        return None
    origin, arguments = typing.get_origin(members[0]), typing.get_args(members[0])
    if not inspect.isclass(origin) or not arguments:
        return None
    if issubclass(origin, tuple):
        return arguments[0] if arguments[1:] == (...,) else None
    return arguments[-1] if issubclass(origin, collections.abc.Collection) else None


def _of_one(kind: Any, name: str) -> Any:
    kind = typing.get_origin(kind) or kind
    if not inspect.isclass(kind) or kind is object or issubclass(kind, Mapping):
        return None
    own = inspect.getattr_static(kind, name, None)
    if isinstance(own, property) and own.fget is not None:
        return _hints(own.fget).get("return")
    hints = _hints(kind)
    if name in hints:
        hint = hints[name]
        return None if typing.get_origin(hint) in (typing.ClassVar, typing.Annotated) else _unmapped(hint)
    return None if hasattr(kind, name) else MISSING


def _unmapped(hint: Any) -> Any:
    """The type of a column, of a row's class."""
    origin = typing.get_origin(hint)
    return typing.get_args(hint)[0] if getattr(origin, "__name__", "") == "Mapped" else hint


def _members(kind: Any) -> list[Any]:
    if kind is None or kind is Any:
        return []
    return list(typing.get_args(kind)) if typing.get_origin(kind) in (typing.Union, types.UnionType) else [kind]


def _union(*kinds: Any) -> Any:
    return None if None in kinds or Any in kinds else functools.reduce(operator.or_, kinds)


def _hints(of: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(of)
    except (NameError, TypeError):  # an import that is only for type checkers
        return {}


@dataclass
class Reader:
    """Follows a template, with the types of its variables, to the attributes that it reads."""

    environment: jinja2.Environment
    missing: set[str] = field(default_factory=set)
    """The missing attributes, each with its template."""
    num_known: int = 0
    """Attributes of values of known types that it has met."""
    _entered: set[tuple[str, str]] = field(default_factory=set)
    _template: str = ""

    def read(self, template: str, variables: Variables) -> None:
        """Follows a template and those that it includes."""
        assert self.environment.loader is not None
        source, *_ = self.environment.loader.get_source(self.environment, template)
        before, self._template = self._template, template
        self._follow(self.environment.parse(source), dict(variables))
        self._template = before

    def _follow(self, node: nodes.Node, variables: Variables) -> None:
        match node:
            case nodes.For():
                self._follow(node.iter, variables)
                inner = {**variables, **dict.fromkeys(_names(node.target)), "loop": None}
                if isinstance(node.target, nodes.Name):
                    inner[node.target.name] = element_of(self._type_of(node.iter, variables))
                for part in [*node.body, *([node.test] if node.test else [])]:
                    self._follow(part, inner)
                for part in node.else_:
                    self._follow(part, variables)
                return
            case nodes.Macro():  # its arguments may be anything
                self._inside(node.body, {**variables, **dict.fromkeys(each.name for each in node.args)})
                return
            case nodes.CallBlock():
                self._follow(node.call, variables)
                self._inside(node.body, {**variables, **dict.fromkeys(each.name for each in node.args)})
                return
            case nodes.Assign():
                self._follow(node.node, variables)
                for name in _names(node.target):
                    variables[name] = None
                if isinstance(node.target, nodes.Name):
                    variables[node.target.name] = self._type_of(node.node, variables)
                return
            case nodes.If():
                self._follow(node.test, variables)
                for branch in (node.body, [*node.elif_], node.else_):
                    inner = dict(variables)
                    self._inside(branch, inner)
                    for name in inner:
                        if inner[name] is not variables.get(name):
                            variables[name] = None  # its type depends on the branch
                return
            case nodes.Include(template=nodes.Const(value=name)):
                self.read(name, variables)
                return
            case nodes.Getattr():
                self._look(node, variables)
        for part in node.iter_child_nodes():
            self._follow(part, variables)

    def _inside(self, parts: list[Any], variables: Variables) -> None:
        for part in parts:
            self._follow(part, variables)

    def _look(self, node: nodes.Getattr, variables: Variables) -> None:
        kind = self._type_of(node.node, variables)
        if kind is None or kind is MISSING:
            return
        self.num_known += 1
        if attribute_of(kind, node.attr) is MISSING:
            self.missing.add(f"{self._template}:{node.lineno}: {kind} has no {node.attr!r}")

    def _type_of(self, node: nodes.Node, variables: Variables) -> Any:
        match node:
            case nodes.Name():
                return variables.get(node.name)
            case nodes.Getattr():
                kind = self._type_of(node.node, variables)
                found = None if kind is None else attribute_of(kind, node.attr)
                return None if found is MISSING else found
            case nodes.Getitem(arg=nodes.Const(value=int())) | nodes.Getitem(arg=nodes.Name()):
                return element_of(self._type_of(node.node, variables))
        return None


def _names(target: nodes.Node) -> list[str]:
    own = [target.name] if isinstance(target, nodes.Name) else []
    return [*own, *(each.name for each in target.find_all(nodes.Name))]
