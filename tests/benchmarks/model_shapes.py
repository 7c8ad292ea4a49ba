"""Parameter shapes of known models, written out so that a benchmark needs neither the models nor their packages."""

from __future__ import annotations

from collections.abc import Callable

Shapes = list[tuple[int, ...]]


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


def llama_1b() -> Shapes:
    """The 16 layers and last norm of a Llama of width 2,048, 8 key and value heads of 64: 973,146,112 parameters.

    Without the token table, for the same reason as `gpt2`.
    """
    width, key_value, hidden = 2048, 512, 8192
    attention = [(width, width), (key_value, width), (key_value, width), (width, width)]
    feed_forward = [(hidden, width), (hidden, width), (width, hidden)]
    layer = [*attention, *feed_forward, (width,), (width,)]
    return [*(shape for _ in range(16) for shape in layer), (width,)]


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
}
