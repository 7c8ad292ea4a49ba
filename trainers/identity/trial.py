"""The identity of a trial, as the rank tells it that has built the model and read the data."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import nn

from trainers.config import TrialConfig
from trainers.identity.data import content_digest
from trainers.identity.model import model_digest
from trainers.identity.shape import has_trained, model_shape
from trainers.identity.values import COMMIT, Environment, TrialIdentity
from trainers.installation.distribution import commit
from trainers.workload.protocol import Workload
from trainers.workloads.registry import describe

OWN_DISTRIBUTION = "shampoo-tuner"
LIBRARIES = ("numpy", "transformers", "peft", "tokenizers", "pyarrow", "PIL")
"""Modules whose versions are told if the process has imported them."""


def identity_of(
    model: nn.Module, workload: Workload, config: TrialConfig, *, device: str, world_size: int
) -> TrialIdentity:
    """The identity of a trial; reads up to `trainers.identity.data.MAX_BYTES` of its data, once per process.

    Args:
        model: as the workload has built it, before it is sharded, compiled or wrapped.
    """
    place = torch.device(device)
    return TrialIdentity(
        model=model_digest(model),
        data=content_digest(workload, describe(config.workload), config.workload_options),
        environment=Environment(
            device=place.type,
            device_name=torch.cuda.get_device_name(place) if place.type == "cuda" else None,
            world_size=world_size,
            versions=versions(type(workload).__module__),
        ),
        shape=model_shape(model) if has_trained(model) else None,
    )


@lru_cache(maxsize=8)
def versions(module: str) -> Mapping[str, str]:
    """The versions of what a trial runs on, by name.

    Args:
        module: of the workload's class; the package that it is of is told if it is installed.
    """
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    package = module.partition(".")[0]
    modules = [name for name in LIBRARIES if name in sys.modules]
    names = [OWN_DISTRIBUTION, *(_distributions_of(modules if package == "trainers" else [*modules, package]))]
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # a module that is no package's
    own_commit = commit()
    if own_commit is not None:
        found[COMMIT] = own_commit
    return found


def _distributions_of(modules: list[str]) -> list[str]:
    """The names under which modules are installed: mostly their own, which saves a look at all that is installed."""
    named = {"PIL": "pillow"}
    found: list[str] = []
    for module in modules:
        name = named.get(module, module)
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found += importlib.metadata.packages_distributions().get(module, ())
        else:
            found.append(name)
    return sorted(set(found))
