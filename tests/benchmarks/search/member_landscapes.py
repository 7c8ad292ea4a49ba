"""Tasks on which a space that branches is searched, as the family of Shampoo is, and each of its members alone."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Mapping

from search_spaces import Categorical, Float, Parameter, Scalar, SearchSpace
from search_spaces.parameters import Conditions
from tests.benchmarks.search.curve_families import FAMILIES, NUM_UNITS, Family
from tests.benchmarks.search.curve_tables import TableObjective, read_table
from tests.benchmarks.search.landscapes import Landscape, SyntheticSide, TableFamily
from tests.benchmarks.search.make_seed_curves import TASKS
from tests.benchmarks.search.seed_tables import read_seed_table

SEED_TABLES = ("digits-mlp-family", "digits-convnet-family")
"""Tables of all members of the family, with several seeds."""
CURVE_TABLES = ("digits-convnet", "stdlib-gpt")
"""Tables of two members, with one seed."""
MEMBERS = ("shampoo", "soap", "kl", "spectral")
"""Names of the members of synthetic families; they are not those methods."""
APART = (0.0, 0.02, 0.05, 0.1)
"""Standard deviations of the members' levels, where a middling config is about 0.5 worse than the best one."""


class TableOfMembers:
    """A table of one seed as a landscape: of any config, the curve of the nearest row, whatever the seed."""

    def __init__(self, name: str) -> None:
        table = read_table(name)
        self.space, self.num_units = table.space, table.num_units
        self._objective = TableObjective(table)

    def curve(self, config: Mapping[str, Scalar], seed: int) -> list[float]:
        return self._objective(config)

    def mean(self, config: Mapping[str, Scalar]) -> float:
        return self._objective(config)[-1]


class SyntheticMembers:
    """Tasks of one synthetic family as the members of another: each has a landscape, a first learning rate and a level
    of its own.

    How far apart the levels lie differs from one to the next, from not at all to as far as members of real tables do.
    """

    def __init__(self, family: Family, seed: int) -> None:
        rng = random.Random(f"{family}/{seed}/members")
        first = 7919 + len(MEMBERS) * seed
        self._sides = {name: SyntheticSide(family, first + place) for place, name in enumerate(MEMBERS)}
        apart = rng.choice(APART)
        self._levels = {name: rng.gauss(0.0, apart) for name in MEMBERS}
        self.num_units = NUM_UNITS[family]
        self.space = _joined({name: _begun(side.space, rng) for name, side in self._sides.items()})

    def curve(self, config: Mapping[str, Scalar], seed: int) -> list[float]:
        name, own = self._own(config)
        return [value + self._levels[name] for value in self._sides[name].curve(own, seed)]

    def mean(self, config: Mapping[str, Scalar]) -> float:
        name, own = self._own(config)
        return self._sides[name].mean(own) + self._levels[name]

    def _own(self, config: Mapping[str, Scalar]) -> tuple[str, dict[str, Scalar]]:
        return str(config["preconditioner"]), {name: v for name, v in config.items() if name != "preconditioner"}


class Alone:
    """One member of a landscape, searched by itself."""

    def __init__(self, landscape: Landscape, choice: Scalar) -> None:
        self._landscape = landscape
        self.space, self.num_units = only(landscape.space, choice), landscape.num_units

    def curve(self, config: Mapping[str, Scalar], seed: int) -> list[float]:
        return self._landscape.curve(config, seed)

    def mean(self, config: Mapping[str, Scalar]) -> float:
        return self._landscape.mean(config)


def only(space: SearchSpace, choice: Scalar) -> SearchSpace:
    """The space with one choice of its member alone, which stays a parameter: configs are of both spaces."""
    member = space.member
    assert member is not None
    kept: list[Parameter] = []
    for parameter in space.parameters:
        if parameter == member:
            kept.append(dataclasses.replace(member, choices=(choice,), default=choice))
            continue
        when = dict(parameter.when)
        if choice in when.pop(member.name, (choice,)):
            kept.append(dataclasses.replace(parameter, when=when))
    return dataclasses.replace(space, parameters=tuple(kept))


def _begun(space: SearchSpace, rng: random.Random) -> SearchSpace:
    """The space with a first learning rate that is drawn."""
    return dataclasses.replace(
        space,
        parameters=tuple(
            dataclasses.replace(one, default=one.from_unit(rng.uniform(0.3, 0.7)))
            if isinstance(one, Float) and one.name == "lr"
            else one
            for one in space.parameters
        ),
    )


def _joined(spaces: Mapping[str, SearchSpace]) -> SearchSpace:
    """A space whose member opens the parameters of one of these."""
    parameters: list[Parameter] = []
    names: list[list[str]] = []
    for name, space in spaces.items():
        for parameter in space.parameters:
            if parameter in parameters:
                names[parameters.index(parameter)].append(name)
            else:
                parameters.append(parameter)
                names.append([name])
    whens: list[Conditions] = [{} if len(own) == len(spaces) else {"preconditioner": tuple(own)} for own in names]
    joined = (dataclasses.replace(one, when=when) for one, when in zip(parameters, whens, strict=True))
    return SearchSpace("shampoo", (Categorical("preconditioner", tuple(spaces)), *joined))


@functools.cache
def landscape_of(name: str, seed: int = 0) -> Landscape:
    """The landscape of that name; of a synthetic family, the one that the seed draws."""
    if name in SEED_TABLES:
        return TableFamily(read_seed_table(name), num_steps=TASKS[name].num_steps)
    if name in CURVE_TABLES:
        return TableOfMembers(name)
    family = next(family for family in FAMILIES if family == name)
    return SyntheticSide(family, seed) if family == "conditional" else SyntheticMembers(family, seed)
