"""Typed search spaces and presets. Standard library only: what never stands here is a search, a trial or a tensor."""

# A package of the distribution shampoo-tuner: trainers.installation.distribution looks for this line.

from __future__ import annotations

from functools import lru_cache

from search_spaces.errors import SpaceError
from search_spaces.nearest import did_you_mean
from search_spaces.parameters import Categorical, Float, Integer, Parameter, Scalar
from search_spaces.perturbation import may_change_in_flight, perturb
from search_spaces.shipped.adamw import ADAMW
from search_spaces.shipped.algoperf import algoperf_points, portfolios
from search_spaces.shipped.family import FAMILY, FAMILY_PRESETS
from search_spaces.shipped.lora_rite import LORA_RITE
from search_spaces.shipped.muon import MUON
from search_spaces.shipped.sgd import SGD
from search_spaces.shipped.shampoo import SHAMPOO, SHAMPOO_SGD
from search_spaces.shipped.shared import begun_for
from search_spaces.shipped.soap import KL, SOAP, SOAP_PEER
from search_spaces.shipped.spectral import COSMOS, SPECTRAL
from search_spaces.space import Assignment, SearchSpace

__all__ = [
    "FAMILY_PRESETS",
    "Assignment",
    "Categorical",
    "Float",
    "Integer",
    "Parameter",
    "Scalar",
    "SearchSpace",
    "SpaceError",
    "algoperf_points",
    "may_change_in_flight",
    "perturb",
    "portfolios",
    "preset",
    "presets",
]


def presets() -> dict[str, SearchSpace]:
    """The search spaces that come with the package, by name."""
    return {
        "shampoo": SHAMPOO,
        "shampoo-sgd": SHAMPOO_SGD,
        "soap": SOAP,
        "kl": KL,
        "spectral": SPECTRAL,
        "cosmos": COSMOS,
        "family": FAMILY,
        "adamw": ADAMW,
        "sgd": SGD,
        "muon": MUON,
        "soap-peer": SOAP_PEER,
        "lora-rite": LORA_RITE,
    }


def preset(name: str, *, num_steps: int | None = None) -> SearchSpace:
    """The preset `name`.

    Args:
        num_steps: of a training, if its first learning rate is to follow from that; the default is for long ones.

    Raises:
        SpaceError: there is none; the message lists those there are.
    """
    found = presets()
    if name not in found:
        raise SpaceError("preset", f"unknown preset {name!r} (known: {', '.join(found)}){did_you_mean(name, found)}")
    return found[name] if num_steps is None else _begun(name, num_steps)


@lru_cache(maxsize=256)  # a job asks for the same few with every measurement, and each would be validated anew
def _begun(name: str, num_steps: int) -> SearchSpace:
    return begun_for(presets()[name], num_steps)
