"""The preset `family`: one search over Shampoo's family, each member in the ranges of its own preset.

Nothing is declared here but which presets take part: ranges, defaults and reasons are theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from search_spaces.parameters import Categorical, Conditions, Parameter
from search_spaces.shipped.shampoo import SHAMPOO, SHAMPOO_SGD
from search_spaces.shipped.soap import KL, SOAP
from search_spaces.shipped.spectral import SPECTRAL
from search_spaces.space import SearchSpace

FAMILY_PRESETS: Mapping[str, tuple[Mapping[str, str], SearchSpace]] = {
    "shampoo": ({"preconditioner": "shampoo", "grafting": "adam"}, SHAMPOO),
    "shampoo-sgd": ({"preconditioner": "shampoo", "grafting": "sgd"}, SHAMPOO_SGD),
    "soap": ({"preconditioner": "soap"}, SOAP),
    "kl": ({"preconditioner": "kl"}, KL),
    "spectral": ({"preconditioner": "spectral"}, SPECTRAL),
}
"""The presets that take part, by name, with the choices that lead to each."""

_MEMBER = Categorical(
    "preconditioner",
    tuple(dict.fromkeys(choices["preconditioner"] for choices, _ in FAMILY_PRESETS.values())),
    reason="the member of the family, each in the ranges of its own preset",
    source="Shampoo (arXiv:1802.09568); SOAP (arXiv:2409.11321); KL-Shampoo (arXiv:2509.03378); Muon is scalable",
)
_GRAFTING = Categorical(
    "grafting",
    tuple(choices["grafting"] for choices, _ in FAMILY_PRESETS.values() if "grafting" in choices),
    when={"preconditioner": ("shampoo",)},
    reason="the method whose step length Shampoo takes; the others have one of their own",
    source="AlgoPerf, Shampoo search space and the five points of the winning submission",
)


def _conditions(names: frozenset[str]) -> list[Conditions]:
    """Conditions that together hold for these presets and no others, and exclude each other."""
    presets: dict[str, set[str]] = {}
    for name, (choices, _) in FAMILY_PRESETS.items():
        presets.setdefault(choices["preconditioner"], set()).add(name)
    whole = tuple(member for member, own in presets.items() if names >= own)
    if len(whole) == len(presets):
        return [{}]
    found: list[Conditions] = [{"preconditioner": whole}] if whole else []
    for name in FAMILY_PRESETS:
        choices, _ = FAMILY_PRESETS[name]
        if name in names and choices["preconditioner"] not in whole:
            found.append({parameter: (choice,) for parameter, choice in choices.items()})
    return found


def _parameters() -> list[Parameter]:
    """Each parameter of the presets once, under the conditions of those that have it, and those of a name together."""
    sharing: dict[str, list[tuple[Parameter, set[str]]]] = {}
    for preset, (_, space) in FAMILY_PRESETS.items():
        for parameter in space.parameters:
            declared = sharing.setdefault(parameter.name, [])
            presets = next((own for other, own in declared if other == parameter), None)
            if presets is None:
                declared.append((parameter, {preset}))
            else:
                presets.add(preset)
    return [
        dataclasses.replace(parameter, when=when)
        for declared in sharing.values()
        for parameter, presets in declared
        for when in _conditions(frozenset(presets))
    ]


FAMILY = SearchSpace(
    optimizer="shampoo",
    parameters=(_MEMBER, _GRAFTING, *_parameters()),
    fixed={
        name: value
        for name, value in SHAMPOO.fixed.items()
        if all(space.fixed.get(name) == value for _, space in FAMILY_PRESETS.values())
    },
)
"""All members at once: the first answer is which of them suits a model."""
