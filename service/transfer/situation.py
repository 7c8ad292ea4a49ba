"""A model with the length of its training: its features, and how far two of them lie apart."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias, get_args

from trainers.identity.values import ModelShape, ParameterKind, ParameterShape


@dataclass(frozen=True, slots=True)
class Features:
    """The size of a model in few numbers."""

    width: float
    """Outputs of a hidden matrix, in the mean over them with these numbers as weights. Outputs that no other matrix
    takes in do not count, such as classes, nor does the head of a language model, as wide as its table of embeddings
    has rows. Where all hidden layers grow by a factor, so does it."""
    fan_in: float
    """Inputs of a matrix, the geometric mean over all of them; of a kernel its inputs times its size. It grows less
    than the width does where some matrices take in what stays, such as pixels."""
    depth: float
    """The number of matrices; those of embeddings and adapters do not count."""
    shares: dict[ParameterKind, float]
    """Share of the elements, by kind; they sum to 1."""

    @property
    def has_adapters(self) -> bool:
        """True if low-rank adapters are what is trained of it."""
        return self.shares.get("adapter", 0.0) > 0


def features_of(shape: ModelShape) -> Features:
    """The features of a model. One without matrices has width, fan-in and depth 1.

    Where there are low-rank adapters, they alone count, as what they adapt is frozen: each pair as a matrix of the
    outputs of what it adapts. A lone matrix, as a head on frozen layers, is as wide as what it takes in.
    """
    adapters = [parameter for parameter in shape.parameters if parameter.kind == "adapter"]
    if adapters:
        return _of_adapters(adapters)
    rows = {parameter.shape[0] for parameter in shape.parameters if parameter.kind == "embedding"}
    matrices = [parameter for parameter in shape.parameters if parameter.kind in ("linear", "convolution")]
    inputs = {parameter.shape[1] for parameter in matrices}
    inner = [parameter for parameter in matrices if parameter.shape[0] in inputs]
    hidden = inner or [parameter for parameter in matrices if parameter.shape[0] not in rows] or matrices
    num_matrices = sum(parameter.count for parameter in matrices)
    sizes = [(parameter.shape[1 if num_matrices == 1 else 0], parameter.count) for parameter in hidden]
    total = sum(parameter.num_elements for parameter in shape.parameters)
    shares: dict[ParameterKind, float] = {}
    for parameter in shape.parameters:
        shares[parameter.kind] = shares.get(parameter.kind, 0.0) + parameter.num_elements / total
    return Features(
        width=_mean_width(sizes),
        fan_in=_mean_fan_in(matrices),
        depth=float(num_matrices or 1),
        shares=shares,
    )


def _of_adapters(adapters: Sequence[ParameterShape]) -> Features:
    """The features of a model of which low-rank adapters are trained: A (rank, d_in), B (d_out, rank). What is adapted
    is taken to be as wide as it takes in."""
    back = [parameter for parameter in adapters if parameter.shape[0] > parameter.shape[1]]
    width = _mean_width([(max(parameter.shape[:2]), parameter.count) for parameter in back or adapters])
    return Features(
        width=width,
        fan_in=width,
        depth=float(sum(parameter.count for parameter in back or adapters)),
        shares={"adapter": 1.0},
    )


def _mean_width(sizes: Sequence[tuple[int, int]]) -> float:
    """The mean of sizes, each with its count, with these numbers as weights; 1 of none."""
    outputs = sum(size * count for size, count in sizes)
    return sum(size**2 * count for size, count in sizes) / outputs if outputs else 1.0


def _mean_fan_in(matrices: Sequence[ParameterShape]) -> float:
    """The geometric mean of the inputs of matrices and kernels; 1 of none."""
    if not matrices:
        return 1.0
    logarithms = sum(parameter.count * math.log(math.prod(parameter.shape[1:])) for parameter in matrices)
    return math.exp(logarithms / sum(parameter.count for parameter in matrices))


OTHER_KINDS = 4.0
"""Octaves between models that have no kind of parameter in common, as a table of embeddings and convolutions."""
OTHER_WORKLOAD = 2.0
"""Octaves between a model's own data and loss and another's; as good as unknown where one of them is no workload's."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The situation that a config is for."""

    features: Features
    batch_size: int
    """Examples in a step, of all ranks."""
    num_steps: int
    """Steps of a whole training."""
    workload: str | None = None
    """None: it is no workload's."""
    digest: str | None = None
    """The model's fingerprint; None: it is not known."""

    @property
    def num_examples(self) -> int:
        """Examples of a whole training, each counted as often as it is seen."""
        return self.batch_size * self.num_steps

    def to_json(self) -> dict[str, Any]:
        """The situation for another process."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The situation that `to_json` gave."""
        return cls(**{**content, "features": Features(**content["features"])})

    @classmethod
    def of(
        cls,
        shape: ModelShape,
        *,
        batch_size: int,
        num_steps: int,
        workload: str | None = None,
        digest: str | None = None,
    ) -> Situation:
        """The situation of a model of this shape."""
        return cls(features_of(shape), batch_size, num_steps, workload, digest)


FamilyMember: TypeAlias = Literal["shampoo", "soap", "kl", "spectral"]
"""A member of Shampoo's family of which configs are known. The preset that searches it has its name."""
FAMILY_MEMBERS: tuple[FamilyMember, ...] = get_args(FamilyMember)
"""All of them."""


@dataclass(frozen=True, slots=True)
class ConfigsWanted:
    """A question for configs of a model that was never tuned."""

    target: Situation
    num_configs: int
    member: FamilyMember | None = None
    """The member of the family that is wanted; None: any."""
    proxy_job: str | None = None
    """The job that tuned a smaller or shorter version of it, whose answer alone is moved."""

    @property
    def members(self) -> tuple[FamilyMember, ...]:
        """The members of the family that are wanted."""
        return FAMILY_MEMBERS if self.member is None else (self.member,)


OF_DEPTH = 3.0
"""The weight of an octave of depth beside one of width. After the rules, which for depth differ, the learning rate
misses by six times as much; but models in use are wider than any that this was measured on.
`python -m tests.benchmarks.answers.transfer_distance` prints what each octave costs."""
OF_BATCH = 0.5
"""Weight of an octave of batch size, likewise, which costs as much as one of width where these were measured."""
OF_LENGTH = 0.5
"""Weight of an octave of steps, whose rule holds on all families."""


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance between two situations, in octaves (factors of two) of each kind."""

    width: float
    depth: float
    batch_size: float
    num_steps: float
    kinds: float
    """Difference in kinds of parameters: `OTHER_KINDS` times the share of the models that is of other kinds; all of it
    where low-rank adapters are trained of one alone."""
    workload: float
    """Other data and loss."""

    @property
    def total(self) -> float:
        """All of them together, as the root of the sum of their squares, each with its weight: 0 where nothing
        differs."""
        of_length = OF_BATCH * self.batch_size, OF_LENGTH * self.num_steps
        return math.hypot(self.width, OF_DEPTH * self.depth, *of_length, self.kinds, self.workload)


def distance(one: Situation, other: Situation) -> Distance:
    """The distance of two situations; symmetric."""
    a, b = one.features, other.features
    apart = 1.0
    if a.has_adapters == b.has_adapters:
        apart = sum(abs(a.shares.get(kind, 0.0) - b.shares.get(kind, 0.0)) for kind in {*a.shares, *b.shares}) / 2
    return Distance(
        width=_octaves(a.width, b.width),
        depth=_octaves(a.depth, b.depth),
        batch_size=_octaves(one.batch_size, other.batch_size),
        num_steps=_octaves(one.num_steps, other.num_steps),
        kinds=OTHER_KINDS * apart,
        workload=0.0 if one.workload is not None and one.workload == other.workload else OTHER_WORKLOAD,
    )


def _octaves(a: float, b: float) -> float:
    return abs(math.log2(a / b))
