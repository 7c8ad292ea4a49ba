"""The kind of a parameter by its name and sizes, as published models call theirs; without torch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from trainers.identity.values import ModelShape, ParameterKind, ParameterShape, ReadShape

EMBEDDING_WORDS = (
    "embed",
    "embd",
    "wte",
    "wpe",
    "tok_emb",
    "pos_emb",
    "lookup",
    "relative_attention_bias",
    "bias_table",
)
"""Parts of the names of modules that are tables of embeddings, and of parameters that are."""
NO_TABLES = ("mask_embedder", "embed_out", "decoder_embed", "proj", "mapping")
"""Parts of the names of layers that have such a part, too, and are no tables: they make embeddings or words."""
SHARED_TABLE = "shared"
"""The name of the table that encoder and decoder of T5 and BART have in common; it has more rows than columns."""
HEADS = ("lm_head", "head", "output", "embed_out", "decoder", "proj_out", "output_projection", "unembed", "generator")
"""Names of the heads of language models, which may be tied to the table of embeddings."""
ADAPTER_WORD = "lora_"
"""The beginning of the part of a name that says whose a factor of a low-rank adapter is, as peft and torchtune have
it."""
WEIGHTS = ("weight", "weight_g", "weight_v", "original0", "original1")
"""Last parts of the names of layers' weights; the others are those of weight norm."""
ELEMENTWISE = ("A_log",)
"""Last parts of the names of parameters that multiply single elements, whatever their sizes: Mamba's decay."""
NOT_TRAINED = (
    *("running_mean", "running_var", "num_batches_tracked"),
    *("inv_freq", "position_ids", "pe", "freqs_cis", "cos_cached", "sin_cached"),
    *("tril", "causal_mask", "attn_mask", "final_logits_bias"),
)
"""Last parts of the names of buffers, which state dicts hold beside parameters: of norms, positions and masks, and the
one that BART adds to its words."""
MIN_MASK_SIDE = 32
"""Positions of the shortest causal mask."""
OF_A_FILE = (
    "A file of weights does not say which parameters are trained: all are taken to be, but those that --frozen names."
)


def shape_of_named(
    parameters: Iterable[tuple[Sequence[str], tuple[int, ...]]],
    *,
    frozen: Sequence[str] = (),
    tied: Sequence[tuple[str, str]] = (),
) -> ReadShape:
    """The shape of the model of which only names and sizes are known: a name says what is an embedding, as published
    models call them. What has no elements is no part of it.

    Args:
        parameters: each once, with all names that it has: several where modules share it.
        frozen: patterns of names (`backbone.*`) of parameters that are not trained.
        tied: tables and heads among them that are taken for one parameter, though each is in the file.

    Raises:
        ValueError: there are none, all are frozen, or a pattern is of none.
    """
    parameters = list(parameters)
    sizes = {name: shape for names, shape in parameters for name in names}
    heads: dict[str, list[str]] = {}
    for table, head in tied:
        heads.setdefault(table, []).append(head)
    again = {head for _, head in tied}
    kept = [
        ([*names, *(head for name in names for head in heads.get(name, ()))], shape)
        for names, shape in parameters
        if again.isdisjoint(names)
        and names[0].rpartition(".")[2] not in NOT_TRAINED
        and 0 not in shape
        and not _is_mask(shape)
    ]
    is_frozen = frozen_of([names for names, _ in kept], frozen)
    read = [
        kind_of_shared([outputs_first(parameter_of_name(name, shape), sizes.get(bias_of(name))) for name in names])
        for (names, shape), left_out in zip(kept, is_frozen, strict=True)
        if not left_out
    ]
    num_frozen = sum(math.prod(shape) for (_, shape), left_out in zip(kept, is_frozen, strict=True) if left_out)
    return ReadShape(
        shape_of_parameters(read, num_frozen=num_frozen),
        num_frozen,
        (OF_A_FILE, *(taken_for_one(*pair) for pair in tied)),
    )


def shape_of_parameters(parameters: Iterable[ParameterShape], *, num_frozen: int) -> ModelShape:
    """The shape of a model with these parameters that are trained.

    Raises:
        ValueError: there are none.
    """
    counts: Counter[tuple[ParameterKind, tuple[int, ...]]] = Counter()
    for one in parameters:
        counts[one.kind, one.shape] += one.count
    if not counts and num_frozen:
        raise ValueError(f"all of its {num_frozen:,} parameters are frozen: there is nothing to train")
    return ModelShape(tuple(sorted(ParameterShape(kind, shape, count) for (kind, shape), count in counts.items())))


def frozen_of(parameters: Sequence[Sequence[str]], patterns: Sequence[str]) -> list[bool]:
    """For each parameter, with all of its names, whether a pattern says that it is frozen.

    Raises:
        ValueError: a pattern is of none of them.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for names in parameters for name in names):
            raise ValueError(f"frozen: no parameter has a name like {pattern!r:.200}")
    return [any(fnmatchcase(name, pattern) for name in names for pattern in patterns) for names in parameters]


def kind_of_shared(parameters: Sequence[ParameterShape]) -> ParameterShape:
    """A parameter by what it is in each of the modules that share it: a table of embeddings that is the head of a
    language model, too, is a table, whichever of them comes first."""
    return next((one for one in parameters if one.kind == "embedding"), parameters[0])


def parameter_of_name(name: str, shape: tuple[int, ...]) -> ParameterShape:
    """The parameter of a name and sizes, which are as the model uses it: a table of positions with a leading 1 for the
    batch is a table, and a token like that a vector, and weights of n experts are n matrices."""
    own = name.rpartition(".")[2]
    is_weight = own in WEIGHTS
    if len(shape) < 2:
        return ParameterShape("vector", shape, 1)
    if is_of_adapter(name):
        return ParameterShape("adapter", shape, 1)
    has_one_side = all(size == 1 for size in shape[:-1]) and not (is_weight and len(shape) == 2)
    if has_one_side or own in ELEMENTWISE or own.endswith("bias"):
        return ParameterShape("vector", (math.prod(shape),), 1)
    if not is_weight and len(shape) == 3 and "experts" in name.split("."):
        return ParameterShape("linear", shape[1:], shape[0])
    is_table = _is_table(name, shape)
    is_of_sequence = len(shape) == 3 and shape[0] == 1
    if not is_weight and (is_table or is_of_sequence):
        return ParameterShape("embedding", (math.prod(shape[:-1]), shape[-1]), 1)
    if len(shape) > 2:
        return ParameterShape("convolution", shape, 1)
    return ParameterShape("embedding" if is_table else "linear", shape, 1)


def outputs_first(parameter: ParameterShape, bias: tuple[int, ...] | None) -> ParameterShape:
    """A parameter with its outputs first. The bias of a linear layer has a number for each output, and so tells weights
    that are (d_in, d_out): those of `Conv1D` of transformers, which GPT-2 is made of.

    Args:
        bias: the shape of its layer's bias; None: there is none, and the weights are as torch has them.
    """
    if parameter.kind == "linear" and bias == parameter.shape[1:] and bias != parameter.shape[:1]:
        return ParameterShape("linear", parameter.shape[::-1], parameter.count)
    return parameter


def may_be_tied(sizes: Mapping[str, tuple[tuple[int, ...], object]]) -> Iterator[tuple[str, str]]:
    """Pairs of a table of embeddings and a head that may be one parameter, saved twice: of equal size and type.

    Args:
        sizes: by name, with the type of their numbers.
    """
    matrices = {name: one for name, one in sizes.items() if len(one[0]) == 2 and not is_of_adapter(name)}
    tables = [name for name, (shape, _) in matrices.items() if _is_table(name, shape)]
    heads = [name for name in matrices if _module(name) in HEADS]
    return ((table, head) for table in tables for head in heads if sizes[table] == sizes[head])


def taken_for_one(table: str, head: str) -> str:
    """The remark on two weights that are tied, as it seems."""
    return (
        f"{head} and {table} hold the same bytes: they were taken for one parameter, the table, which is the head, too."
    )


def is_of_adapter(name: str) -> bool:
    """True if a module or parameter of this name belongs to a low-rank adapter."""
    return any(part.startswith(ADAPTER_WORD) for part in name.split("."))


def bias_of(name: str) -> str:
    """The name of the bias beside weights of this name; an empty one if these are no layer's whole weights."""
    module, point, own = name.rpartition(".")
    return f"{module}{point}bias" if own == "weight" else ""


def _is_mask(shape: tuple[int, ...]) -> bool:
    """True of a causal mask, the buffer `attn.bias` of published GPT-2s: a square for one batch and one head. Kernels
    of one channel are smaller."""
    return len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3] >= MIN_MASK_SIDE


def _is_table(name: str, shape: tuple[int, ...]) -> bool:
    module = _module(name)
    if module == SHARED_TABLE:
        return shape[0] > shape[-1]
    return any(word in module for word in EMBEDDING_WORDS) and not any(word in module for word in NO_TABLES)


def _module(name: str) -> str:
    """The name of the layer whose weight this is, or of a parameter that is no layer's; not its number in a list."""
    parts = [part for part in name.lower().split(".") if not part.isdecimal()]
    if len(parts) > 1 and parts[-1] in WEIGHTS:
        return parts[-2]
    return parts[-1] if parts else ""
