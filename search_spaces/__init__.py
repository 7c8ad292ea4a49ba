"""Typed search spaces and presets. Standard library only."""

# A package of the distribution shampoo-tuner: trainers.installation.distribution looks for this line.

from __future__ import annotations

from search_spaces.adamw import ADAMW
from search_spaces.algoperf import algoperf_points
from search_spaces.errors import SpaceError
from search_spaces.muon import MUON
from search_spaces.nearest import did_you_mean
from search_spaces.parameters import Categorical, Float, Integer, Parameter, Scalar
from search_spaces.perturbation import may_change_in_flight, perturb
from search_spaces.sgd import SGD
from search_spaces.shampoo import SHAMPOO, SHAMPOO_SGD
from search_spaces.soap import KL, SOAP, SOAP_PEER
from search_spaces.space import Assignment, SearchSpace

__all__ = [
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
        "adamw": ADAMW,
        "sgd": SGD,
        "muon": MUON,
        "soap-peer": SOAP_PEER,
    }


def preset(name: str) -> SearchSpace:
    """The preset `name`.

    Raises:
        SpaceError: there is none; the message lists those there are.
    """
    found = presets()
    if name not in found:
        raise SpaceError("preset", f"unknown preset {name!r} (known: {', '.join(found)}){did_you_mean(name, found)}")
    return found[name]
