"""The features of a model that scaling rules and distances go by, read off its parameters."""

from __future__ import annotations

from dataclasses import dataclass

from trainers.identity.values import ModelShape, ParameterKind


@dataclass(frozen=True, slots=True)
class Features:
    """The size of a model in few numbers."""

    width: float
    """Outputs of a hidden matrix, in the mean over them with these numbers as weights. Outputs that no other matrix
    takes in do not count, such as classes, nor does the head of a language model, as wide as its table of embeddings
    has rows. Where all hidden layers grow by a factor, so does it."""
    depth: float
    """The number of matrices; those of embeddings and adapters do not count."""
    num_parameters: int
    """Their elements together."""
    shares: dict[ParameterKind, float]
    """Of the elements, by kind; they sum to 1."""

    @property
    def has_adapters(self) -> bool:
        """True if low-rank adapters are what is trained of it."""
        return self.shares.get("adapter", 0.0) > 0


def features_of(shape: ModelShape) -> Features:
    """The features of a model. One without matrices has width and depth 1."""
    rows = {parameter.shape[0] for parameter in shape.parameters if parameter.kind == "embedding"}
    matrices = [parameter for parameter in shape.parameters if parameter.kind in ("linear", "convolution")]
    inputs = {parameter.shape[1] for parameter in matrices}
    inner = [parameter for parameter in matrices if parameter.shape[0] in inputs]
    hidden = inner or [parameter for parameter in matrices if parameter.shape[0] not in rows] or matrices
    outputs = sum(parameter.count * parameter.shape[0] for parameter in hidden)
    squares = sum(parameter.count * parameter.shape[0] ** 2 for parameter in hidden)
    total = sum(parameter.num_elements for parameter in shape.parameters)
    shares: dict[ParameterKind, float] = {}
    for parameter in shape.parameters:
        shares[parameter.kind] = shares.get(parameter.kind, 0.0) + parameter.num_elements / total
    return Features(
        width=squares / outputs if outputs else 1.0,
        depth=float(sum(parameter.count for parameter in matrices) or 1),
        num_parameters=total,
        shares=shares,
    )
