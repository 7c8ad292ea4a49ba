"""Tells the fingerprint of a model: `python -m trainers.identity.fingerprinting NAME OPTIONS FROZEN`, with options, and
patterns of the names of parameters that are not trained, as JSON.

NAME is a workload, `module:Class` of a workload or of any `torch.nn.Module`, a function that builds one, or one that is
built; or else a file with a state dict, whose code is not run. Models are built without weights. Prints a
`Fingerprint`, or why there is none, as a line of `trainers.workloads.messages`. `ask_fingerprint` is the other end.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    gc.disable()  # it imports and ends: looking for garbage, now and at the end, takes a third of its time

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainers.config import InvalidConfig, Json
from trainers.identity.model import model_digest
from trainers.identity.shape import read_model, shape_of_state_dict
from trainers.identity.values import Fingerprint, ReadShape, fingerprint_of_read, fingerprint_of_workload
from trainers.workload.user_workload import classes_of, explain, is_reference
from trainers.workloads.messages import answer
from trainers.workloads.registry import UnknownWorkload, describe, load


def fingerprint_of(name: str, options: Mapping[str, Json], *, frozen: Sequence[str] = ()) -> Fingerprint:
    """The fingerprint of a file's, a workload's or a module's model, of the parameters that are trained.

    Args:
        frozen: patterns of the names (`backbone.*`) of parameters that are not: of a file, which does not say it, or of
            a module beside those that require no gradient. A workload freezes its own.

    Raises:
        InvalidConfig: it cannot be told; the message says why.
    """
    if Path(name).is_file():
        if options:
            raise InvalidConfig("options", f"have no effect with a file, got {', '.join(options)}")
        try:
            return fingerprint_of_read(shape_of_state_dict(Path(name), frozen=frozen), Path(name).name)
        except ValueError as error:
            raise InvalidConfig("name", str(error)) from error
    given = "".join(f" {option}={json.dumps(value)}" for option, value in options.items())
    if is_reference(name):
        found = _imported(name)
        if not hasattr(found, "build_model"):
            return fingerprint_of_read(_read(name, _built(name, found, options), frozen), name + given)
    if frozen:
        raise InvalidConfig("frozen", f"{name} is a workload, which says itself what is trained")
    try:
        description = describe(name)
    except UnknownWorkload as error:
        raise InvalidConfig("name", f"no file {name!r} is here, and {error.message}") from error
    workload = load(name, options)
    with torch.device("meta"):
        model = workload.build_model()
    of_model = {
        option: options.get(option, spec.default)
        for option, spec in description.options.items()
        if spec.role == "model"
    }
    digest = fingerprint_of_workload(description.name, model_digest(model), of_model)
    return fingerprint_of_read(_read(name, model), name + given, description.name, digest, options)


def _imported(reference: str) -> Any:
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the boundary to a user's own code
        raise InvalidConfig("name", f"{module_name} cannot be imported: {explain(error)}") from error
    if not hasattr(module, name):
        raise InvalidConfig("name", f"module {module_name} has no {name!r} {classes_of(module)}")
    return getattr(module, name)


def _built(reference: str, found: Any, options: Mapping[str, Json]) -> nn.Module:
    if not isinstance(found, nn.Module):
        if not callable(found):
            raise InvalidConfig("name", f"{reference} is no module, and nothing that builds one: {found!r:.80}")
        try:
            with torch.device("meta"):
                found = found(**options)
        except (Exception, SystemExit) as error:  # the boundary to a user's own code
            raise InvalidConfig("name", f"{reference} cannot be built: {explain(error)}") from error
    elif options:
        raise InvalidConfig("options", f"have no effect on {reference}, which is built, got {', '.join(options)}")
    if not isinstance(found, nn.Module):
        raise InvalidConfig("name", f"{reference} built no torch.nn.Module, but {found!r:.80}")
    return found


def _read(name: str, model: nn.Module, frozen: Sequence[str] = ()) -> ReadShape:
    try:
        return read_model(model, frozen=frozen)
    except ValueError as error:
        raise InvalidConfig("name", f"{name}: {error}") from error


def main() -> int:
    """Runs the command; 0 if the fingerprint could be told."""
    torch.set_num_threads(1)
    name, options, frozen = sys.argv[1:4]
    return answer(lambda: fingerprint_of(name, json.loads(options), frozen=json.loads(frozen)))


if __name__ == "__main__":
    status = main()
    gc.freeze()
    sys.exit(status)
