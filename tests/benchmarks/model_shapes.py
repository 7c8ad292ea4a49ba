"""Parameter shapes of known models, written out so that a benchmark needs neither the models nor their packages."""

from __future__ import annotations

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
    width = 768
    layers = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    block = [shape for layer in layers for shape in (layer, (layer[0],))] + [(width,)] * 4
    return [*(shape for _ in range(12) for shape in block), (width,), (width,)]


MODELS = {"mlp": mlp, "resnet50": resnet50, "gpt2": gpt2}
