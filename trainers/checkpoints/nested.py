"""Nested state <-> named tensors and a structure that is JSON.

A trial's state is nested dicts, lists and tuples whose leaves are tensors and plain values. Tensors get a name from
their path (`optimizer/state/0/exp_avg`); everything else, containers included, becomes the *structure*: plain values
are themselves, and an object with the one key `dict`, `list`, `tuple`, `tensor` or `per_rank` is the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PerRank:
    """A part of the state that every rank has of its own, such as its random generators' or its residuals.

    It is given back to the same rank at equal world size, and as None at another.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class LikeParameter:
    """A part of unknown structure in a template: its tensors of the parameter's shape are laid out as it is."""

    parameter: Tensor


def flatten(state: Any, *, rank: int) -> tuple[dict[str, Tensor], Any]:
    """The tensors of `state` by name, and its structure. Nothing is copied.

    Raises:
        ValueError: a leaf is neither a tensor nor a plain value, or two tensors have the same name.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _flatten(state, "", rank, tensors)


def _flatten(node: Any, path: str, rank: int, tensors: dict[str, Tensor]) -> Any:
    match node:
        case None | bool():
            return node
        case Tensor():
            if path in tensors:
                raise ValueError(f"two tensors of the state have the name {path!r}")
            if node.layout is not torch.strided or node.is_quantized:
                raise ValueError(f"{path} is sparse or quantized: only dense tensors go into a checkpoint")
            tensors[path] = node.detach()
            return {"tensor": None}
        # Not the subclasses themselves, e.g. numpy's float64: the value is the same, and JSON knows it.
        case int():
            return int(node)
        case float():
            return float(node)
        case str():
            return str(node)
        case Mapping():
            return {
                "dict": [
                    [_legal_key(key, path), _flatten(v, join(path, key), rank, tensors)] for key, v in node.items()
                ]
            }
        case list():
            return {"list": [_flatten(v, join(path, i), rank, tensors) for i, v in enumerate(node)]}
        case tuple() if type(node) is tuple:
            return {"tuple": [_flatten(v, join(path, i), rank, tensors) for i, v in enumerate(node)]}
        case PerRank():
            return {"per_rank": {str(rank): _flatten(node.value, join(path, f"rank-{rank}"), rank, tensors)}}
        case _:
            raise ValueError(f"{path or 'the state'} is {node!r}: only tensors and plain values go into a checkpoint")


def join(path: str, key: object) -> str:
    """The name of an entry of the container at `path`."""
    name = str(key).replace("%", "%25").replace("/", "%2F")
    return f"{path}/{name}" if path else name


def _legal_key(key: object, path: str) -> object:
    if isinstance(key, str | int) or key is None:
        return key
    raise ValueError(f"{path or 'the state'} has the key {key!r}: only strings and integers go into a checkpoint")


def merge(structures: Sequence[Any]) -> Any:
    """The structure of all ranks' states together, from each rank's.

    Raises:
        ValueError: ranks have different plain values at the same place; the message names it.
    """
    merged = structures[0]
    for rank, structure in enumerate(structures[1:], start=1):
        merged = _merge(merged, structure, "", rank)
    return merged


def _merge(a: Any, b: Any, path: str, rank: int) -> Any:
    # NaN is unequal to itself.
    if a == b or (isinstance(a, float) and isinstance(b, float) and a != a and b != b):
        return a
    kind = next(iter(a)) if isinstance(a, dict) else None
    if kind is None or not isinstance(b, dict) or next(iter(b)) != kind:
        raise ValueError(
            f"{path} is {_shown(a)} on rank 0 and {_shown(b)} on rank {rank}; if it may differ, use PerRank"
        )
    x, y = a[kind], b[kind]
    if kind == "per_rank":
        return {kind: {**x, **y}}
    if kind == "dict":
        theirs = dict(y)
        both = [[key, _merge(v, theirs[key], join(path, key), rank) if key in theirs else v] for key, v in x]
        ours = dict(x)
        return {kind: both + [[key, v] for key, v in y if key not in ours]}
    if len(x) != len(y):
        raise ValueError(f"{path} has {len(x)} elements on rank 0 and {len(y)} on rank {rank}")
    return {kind: [_merge(v, w, join(path, i), rank) for i, (v, w) in enumerate(zip(x, y, strict=True))]}


def _shown(structure: Any) -> str:
    return f"a {next(iter(structure))}" if isinstance(structure, dict) else repr(structure)


def paths(template: Any, path: str = "") -> Iterator[str]:
    """The name of every entry in every dict of a template."""
    match template:
        case Mapping():
            for key, value in template.items():
                yield join(path, key)
                yield from paths(value, join(path, key))
        case list() | tuple():
            for index, value in enumerate(template):
                yield from paths(value, join(path, index))


def unflatten(
    structure: Any,
    *,
    template: Any,
    rank: int | None,
    is_wanted: Callable[[str], bool],
    tensor: Callable[[str, Any], Tensor],
) -> Any:
    """The state of a structure.

    `template` is state of this rank; `rank` is whose part of `PerRank` is given, or None for no one's; an entry of a
    dict is left out unless `is_wanted(its name)`; `tensor(name, like)` gives a tensor, `like` being what the template
    has in its place: a tensor, a `LikeParameter` or None.
    """

    def build(node: Any, path: str, like: Any) -> Any:
        if not isinstance(node, dict):
            return node
        kind, content = next(iter(node.items()))
        match kind:
            case "tensor":
                return tensor(path, like)
            case "dict":
                entries = [(key, v, join(path, key)) for key, v in content]
                return {key: build(v, name, _entry(like, key)) for key, v, name in entries if is_wanted(name)}
            case "list":
                return [build(v, join(path, i), _entry(like, i)) for i, v in enumerate(content)]
            case "tuple":
                return tuple(build(v, join(path, i), _entry(like, i)) for i, v in enumerate(content))
            case "per_rank":
                if rank is None or str(rank) not in content:
                    return None
                own = like.value if isinstance(like, PerRank) else None
                return build(content[str(rank)], join(path, f"rank-{rank}"), own)
            case _:
                raise KeyError(kind)

    return build(structure, "", template)


def _entry(like: Any, key: Any) -> Any:
    match like:
        case LikeParameter():
            return like
        case Mapping():
            return like.get(key)
        case list() | tuple():
            return like[key] if isinstance(key, int) and key < len(like) else None
        case _:
            return None
