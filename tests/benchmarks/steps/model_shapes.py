"""Parameter shapes of known models, written out so that a benchmark needs neither the models nor their packages."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Shapes = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class SplitModel:
    """A whole model's parameters, split as `shampoo.param_groups` does."""

    matrices: Shapes
    """Shapes of hidden layers and convolutions."""
    plain: Shapes
    """Tables, the head, norms and biases."""
    active_elements: int
    """Weights that take part in a token's (or example's) forward pass: without tables that are only looked up, and of
    a mixture of experts as many as a token visits. Shared weights of convolutions are counted once."""

    @property
    def num_elements(self) -> int:
        return sum(math.prod(shape) for shape in (*self.matrices, *self.plain))


def mlp() -> Shapes:
    """784-512-512-10 with biases: 669,706 parameters."""
    sides = (784, 512, 512, 10)
    return [shape for i in range(3) for shape in ((sides[i + 1], sides[i]), (sides[i + 1],))]


def resnet50() -> Shapes:
    """ResNet-50 for 1,000 classes (He et al. 2015, arXiv 1512.03385, table 1): 25,557,032 parameters."""

    def convolution(out: int, into: int, kernel: int) -> Shapes:
        # Each is followed by a batch norm's scale and shift.
        return [(out, into, kernel, kernel), (out,), (out,)]

    shapes = convolution(64, 3, 7)
    channels = 64
    for width, num_blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(num_blocks):
            shapes += convolution(width, channels, 1) + convolution(width, width, 3) + convolution(4 * width, width, 1)
            if block == 0:
                shapes += convolution(4 * width, channels, 1)
            channels = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def gpt2() -> Shapes:
    """The 12 blocks and last norm of GPT-2 124M, width 768: 85,056,000 parameters.

    Without the token and position tables, which usually step with Adam, as in published figures for this model.
    """
    return [*_transformer(width=768, num_layers=12), (768,), (768,)]


def gpt2_with_embeddings() -> Shapes:
    """The whole of GPT-2 124M, its head tied to the token table: 124,439,808 parameters."""
    return [(50_257, 768), (1_024, 768), *gpt2()]


def vit_b16() -> Shapes:
    """ViT-B/16 at 224 pixels for 1,000 classes (arXiv 2010.11929, table 1): 86,567,656 parameters."""
    width = 768
    embedding = [(width, 3, 16, 16), (width,), (1, 1, width), (1, 197, width)]
    head = [(width,), (width,), (1000, width), (1000,)]
    return [*embedding, *_transformer(width=width, num_layers=12), *head]


def llama_1b(num_layers: int = 16) -> Shapes:
    """The 16 layers and last norm of a Llama of width 2,048, 8 key and value heads of 64: 973,146,112 parameters.

    Without the token table, for the same reason as `gpt2`.
    """
    width, key_value, hidden = 2048, 512, 8192
    attention = [(width, width), (key_value, width), (key_value, width), (width, width)]
    feed_forward = [(hidden, width), (hidden, width), (width, hidden)]
    layer = [*attention, *feed_forward, (width,), (width,)]
    return [*layer * num_layers, (width,)]


def llama_1b_two_layers() -> Shapes:
    """Two of the 16 equal layers of `llama_1b`, for machines with little memory: 121,645,056 parameters."""
    return llama_1b(num_layers=2)


def whole_resnet50() -> SplitModel:
    """`resnet50`."""
    shapes = resnet50()
    return SplitModel([x for x in shapes if len(x) == 4], [x for x in shapes if len(x) != 4], _elements(shapes))


def whole_gpt2() -> SplitModel:
    """`gpt2_with_embeddings`."""
    tables, rest = gpt2_with_embeddings()[:2], gpt2()
    return _split([*tables, *_vectors(rest)], rest, active=_elements([tables[0], *rest]))


def tiny_gpt2() -> SplitModel:
    """`whole_gpt2` of width 32, two layers and 100 tokens."""
    table, rest = (100, 32), [*_transformer(width=32, num_layers=2), (32,), (32,)]
    return _split([table, (16, 32), *_vectors(rest)], rest, active=_elements([table, *rest]))


def tiny_resnet() -> SplitModel:
    """Convolutions and norms such as those of `whole_resnet50`, and its head, with few channels."""
    convolutions: Shapes = [(8, 3, 7, 7), (8, 8, 1, 1), (8, 8, 3, 3), (32, 8, 1, 1)]
    plain: Shapes = [*((out,) for out, *_ in convolutions for _ in range(2)), (10, 32), (10,)]
    return SplitModel(convolutions, plain, _elements([*convolutions, *plain]))


def whole_llama_1b() -> SplitModel:
    """Llama 3.2 1B, its head tied to a table of 128,256 tokens: 1,235,814,400 parameters."""
    table, rest = (128_256, 2_048), llama_1b()
    return _split([table, *_vectors(rest)], rest, active=_elements([table, *rest]))


def whole_llama_7b() -> SplitModel:
    """Llama 2 7B (arXiv 2307.09288): 6,738,415,616 parameters."""
    return _llama(width=4_096, key_value=4_096, hidden=11_008, num_layers=32)


def whole_llama_70b() -> SplitModel:
    """Llama 2 70B (arXiv 2307.09288), 8 key and value heads of 128: 68,976,648,192 parameters."""
    return _llama(width=8_192, key_value=1_024, hidden=28_672, num_layers=80)


def dense_1t() -> SplitModel:
    """The GPT of 1,008 billion parameters of arXiv 2104.04473, table 1: 128 layers of width 25,600, a tied head."""
    width = 25_600
    tables: Shapes = [(51_200, width), (2_048, width)]
    rest = [*_transformer(width=width, num_layers=128), (width,), (width,)]
    return _split([*tables, *_vectors(rest)], rest, active=_elements([tables[0], *rest]))


def mixture_1t() -> SplitModel:
    """A mixture of experts in the sizes of Kimi K2 (arXiv 2507.20534): 1,026 billion parameters.

    61 layers of width 7,168, latent attention of 64 heads; in all but the first, 8 of 384 experts of hidden size 2,048
    for each token, and one for all. Each expert's matrices are parameters of their own.
    """
    width, hidden, num_layers, num_experts, num_visited = 7_168, 2_048, 61, 384, 8
    attention: Shapes = [(1_536, width), (12_288, 1_536), (576, width), (16_384, 512), (width, 8_192)]
    norms: Shapes = [(width,), (width,), (1_536,), (512,)]
    expert: Shapes = [(hidden, width), (hidden, width), (width, hidden)]
    first: Shapes = [(18_432, width), (18_432, width), (width, 18_432)]
    router: Shapes = [(num_experts, width)]
    num_mixtures = num_layers - 1
    matrices = attention * num_layers + first + (router + expert * (num_experts + 1)) * num_mixtures
    table = (163_840, width)
    active = attention * num_layers + first + (router + expert * (num_visited + 1)) * num_mixtures
    return SplitModel(matrices, [table, table, *norms * num_layers, (width,)], _elements([table, *active]))


def stacked_mixture_1t() -> SplitModel:
    """`mixture_1t` with the experts of a layer stacked in three parameters of three sides each."""
    separate = mixture_1t()
    expert = ((2_048, 7_168), (7_168, 2_048))
    others = [shape for shape in separate.matrices if shape not in expert]
    stacked: Shapes = [(384, 2_048, 7_168), (384, 2_048, 7_168), (384, 7_168, 2_048)]
    shared: Shapes = [(2_048, 7_168), (2_048, 7_168), (7_168, 2_048)]
    return SplitModel([*others, *(stacked + shared) * 60], separate.plain, separate.active_elements)


def recommender() -> SplitModel:
    """DLRM (arXiv 1906.00091) with a row of 128 for each category of Criteo's display advertising challenge.

    26 tables of 3 to 10,131,227 rows, 33,762,577 together, and layers 13-512-256-128 and 479-1024-1024-512-256-1.
    """
    rows: tuple[int, ...]
    rows = (1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194)
    rows += (27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572)
    sides = ((13, 512, 256, 128), (479, 1_024, 1_024, 512, 256, 1))
    layers: Shapes = [(layer[i + 1], layer[i]) for layer in sides for i in range(len(layer) - 1)]
    hidden, head = layers[:-1], layers[-1]
    biases: Shapes = [(out,) for out, _ in layers]
    return SplitModel(hidden, [*((n, 128) for n in rows), head, *biases], _elements([*layers, *biases]))


def _llama(*, width: int, key_value: int, hidden: int, num_layers: int, num_tokens: int = 32_000) -> SplitModel:
    attention: Shapes = [(width, width), (key_value, width), (key_value, width), (width, width)]
    layer: Shapes = [*attention, (hidden, width), (hidden, width), (width, hidden)]
    table = (num_tokens, width)
    matrices = layer * num_layers
    return SplitModel(matrices, [table, table, *[(width,)] * (2 * num_layers + 1)], _elements([table, *matrices]))


def _split(plain: Shapes, shapes: Shapes, *, active: int) -> SplitModel:
    return SplitModel([shape for shape in shapes if len(shape) > 1], plain, active)


def _vectors(shapes: Shapes) -> Shapes:
    return [shape for shape in shapes if len(shape) == 1]


def _elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes)


def _transformer(*, width: int, num_layers: int) -> Shapes:
    """Layers with biases: attention, a feed-forward part four times as wide, two norms."""
    layers = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    block = [shape for layer in layers for shape in (layer, (layer[0],))] + [(width,)] * 4
    return [shape for _ in range(num_layers) for shape in block]


MODELS: dict[str, Callable[[], Shapes]] = {
    "mlp": mlp,
    "resnet50": resnet50,
    "gpt2": gpt2,
    "gpt2_with_embeddings": gpt2_with_embeddings,
    "vit_b16": vit_b16,
    "llama_1b": llama_1b,
    "llama_1b_two_layers": llama_1b_two_layers,
}

SPLIT_MODELS: dict[str, Callable[[], SplitModel]] = {
    "resnet50": whole_resnet50,
    "gpt2": whole_gpt2,
    "llama_1b": whole_llama_1b,
    "llama_7b": whole_llama_7b,
    "llama_70b": whole_llama_70b,
    "dense_1t": dense_1t,
    "mixture_1t": mixture_1t,
    "stacked_mixture_1t": stacked_mixture_1t,
    "recommender": recommender,
}
