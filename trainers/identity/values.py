"""The identity of a trial as plain values, without torch: it travels from a rank to whoever keeps it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeAlias

ParameterKind: TypeAlias = Literal["linear", "convolution", "embedding", "vector", "adapter"]
"""Kinds of a parameter: a matrix, a kernel of more than two dimensions, a table of embeddings, anything of fewer; or a
factor of a low-rank adapter, whatever it adapts."""

DIGEST_LENGTH = 32
"""Hexadecimal digits of a digest: 128 bits, so that no two models meet in one, and people can copy it."""


MAX_KINDS = 10_000
"""Different parameters of a model, at most: published ones have tens."""

COMMIT = "shampoo-tuner's commit"
"""The name among the versions of the commit that is checked out, where ours are a git checkout's packages."""

READING = 2
"""The version of how shapes are read: since 2 the matrices of GPT-2, too, have their outputs first."""


@dataclass(frozen=True, slots=True, order=True)
class ParameterShape:
    """Parameters of one kind and size."""

    kind: ParameterKind
    shape: tuple[int, ...]
    """Outputs first, as torch has them: (d_out, d_in), (d_out, d_in, height, width), (rows, width)."""
    count: int
    """The number of such parameters in the model."""

    @property
    def num_elements(self) -> int:
        """The elements of all of them together."""
        return self.count * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The multiset of a model's trained parameters: what settings are moved by, from one model to another."""

    parameters: tuple[ParameterShape, ...]
    """Sorted."""

    def __post_init__(self) -> None:
        if not any(parameter.num_elements for parameter in self.parameters):
            raise ValueError("a model without parameters has no shape")
        if len(self.parameters) > MAX_KINDS:
            raise ValueError(f"a model has at most {MAX_KINDS} different parameters, got {len(self.parameters)}")

    def to_json(self) -> list[dict[str, Any]]:
        """The parameters, each with `kind`, `shape` and `count`."""
        return [
            {"kind": parameter.kind, "shape": list(parameter.shape), "count": parameter.count}
            for parameter in self.parameters
        ]

    @classmethod
    def from_json(cls, parameters: Iterable[Mapping[str, Any]]) -> Self:
        """The shape that `to_json` gave."""
        return cls(tuple(sorted(ParameterShape(one["kind"], tuple(one["shape"]), one["count"]) for one in parameters)))


@dataclass(frozen=True, slots=True)
class ReadShape:
    """The shape of a model as it was read, and what a person should know of it."""

    shape: ModelShape
    num_frozen: int = 0
    """Elements of the parameters that are not trained: none of them is in the shape."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Environment:
    """The place of a training: hardware and software."""

    device: str
    """`cpu` or `cuda`."""
    device_name: str | None
    """The GPU as CUDA calls it; None on the CPU."""
    world_size: int
    """Ranks of the trial."""
    versions: Mapping[str, str]
    """`python`, `torch`, `shampoo-tuner`, the package that the workload is of, and libraries that were in use."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The environment that `dataclasses.asdict` and JSON made into `content`."""
        return cls(content["device"], content["device_name"], content["world_size"], content["versions"])

    @property
    def hardware(self) -> str:
        """The GPU as CUDA calls it, or `cpu`."""
        return self.device_name or self.device


def versions_of_measures(versions: Mapping[str, str]) -> dict[str, str]:
    """Versions of an environment that say what a metric measures: of the workload's package, shampoo-tuner and the
    libraries. Another Python, torch or CUDA may train otherwise, and measures the same."""
    return {name: found for name, found in versions.items() if name not in ("python", "torch", "cuda", COMMIT)}


@dataclass(frozen=True, slots=True)
class TrialIdentity:
    """A trial's model and data, as digests, and the place of its training."""

    model: str
    """Digest of the built model (`trainers.identity.model.model_digest`)."""
    data: str | None
    """Digest of what it reads (`trainers.identity.data.content_digest`); None: there is no telling."""
    environment: Environment
    shape: ModelShape | None = None
    """The model's shape; None: it has no parameters that are trained."""


@dataclass(frozen=True, slots=True)
class ToldModel:
    """The model that a trial would train."""

    digest: str
    """Its `trainers.identity.model.model_digest`."""
    shape: ModelShape | None
    """None: it has no parameters that are trained."""

    def to_json(self) -> dict[str, Any]:
        """The model, as `from_json` reads it."""
        return {"digest": self.digest, "shape": None if self.shape is None else self.shape.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The model that `to_json` gave."""
        shape = data["shape"]
        return cls(data["digest"], None if shape is None else ModelShape.from_json(shape))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A model as it is known before it is trained: enough to find tuned ones like it."""

    shape: ModelShape
    source: str
    """The source of this description, for a person: a file's name, `module:Class` or a workload with its options."""
    workload: str | None = None
    """The name of the workload that builds it; None: it is no workload's."""
    digest: str | None = None
    """The fingerprint that trials of that workload with these options have; None: it is no workload's."""
    options: Mapping[str, Any] | None = None
    """The options of the workload that were given; None: it is no workload's, or they are not known."""
    num_frozen: int = 0
    """Elements of the parameters that are not trained: none of them is in the shape."""
    remarks: tuple[str, ...] = ()
    """Remarks on the shape, for a person: what was not known of it, and how it was taken."""
    reading: int | None = READING
    """The version of how the shape was read; None: the file is older than that."""

    def to_json(self) -> dict[str, Any]:
        """The JSON that a file holds, and a request."""
        return {
            "source": self.source,
            "workload": self.workload,
            "digest": self.digest,
            "options": None if self.options is None else dict(self.options),
            "parameters": self.shape.to_json(),
            "num_frozen": self.num_frozen,
            "remarks": list(self.remarks),
            "reading": self.reading,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The fingerprint that `to_json` gave."""
        shape = ModelShape.from_json(data["parameters"])
        named = (data["source"], data["workload"], data["digest"], data["options"])
        return cls(shape, *named, data["num_frozen"], tuple(data["remarks"]), data.get("reading"))


def fingerprint_of_read(
    read: ReadShape,
    source: str,
    workload: str | None = None,
    digest: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Fingerprint:
    """The fingerprint of a model of which this was read."""
    return Fingerprint(read.shape, source, workload, digest, options, read.num_frozen, read.remarks)


def fingerprint_of_workload(name: str, model: str, options: Mapping[str, Any]) -> str:
    """The fingerprint of a workload's model. An option counts beside the parameters, as it may change what they do.

    Args:
        model: its `trainers.identity.model.model_digest`.
        options: all of the workload's options of the role `model`.
    """
    return digest_of([name, model, dict(options)])


def digest_of(value: object) -> str:
    """The digest of a JSON-able value, the same in every process."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
