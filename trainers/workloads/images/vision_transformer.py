"""Vision transformers (Dosovitskiy et al., arXiv 2010.11929).

Parameters have the names that they have in timm, so that weights and layer-wise settings found elsewhere apply.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.workloads.options import with_width_and_depth

NORM_EPSILON = 1e-6
"""Epsilon of layer norms in the published vision transformers (arXiv 2010.11929)."""
MLP_RATIO = 4
"""Width inside a block's two layers, relative to the model's."""
POSITION_DEVIATION = 0.02
"""Initial deviation of the position embedding."""


@dataclass(frozen=True, slots=True)
class VisionTransformerShape:
    """The shape of a vision transformer, but for its patches."""

    width: int
    num_blocks: int
    num_heads: int


VISION_TRANSFORMERS = {
    "vit-nano": VisionTransformerShape(width=64, num_blocks=4, num_heads=2),
    "vit-tiny": VisionTransformerShape(width=192, num_blocks=12, num_heads=3),
    "vit-small": VisionTransformerShape(width=384, num_blocks=12, num_heads=6),
    "vit-base": VisionTransformerShape(width=768, num_blocks=12, num_heads=12),
}
"""`base` is the paper's; `small` and `tiny` are those of Touvron et al. (arXiv 2012.12877); `nano` is for small images.
"""


def vision_transformer_shape(name: str, *, width: object, depth: object) -> VisionTransformerShape:
    """The shape of that name, except for what is given. Heads keep their width, as in the published ones.

    Raises:
        ValueError: an option is no integer >= 1, or the width is no multiple of a head's.
    """
    return with_width_and_depth(VISION_TRANSFORMERS[name], width=width, depth=depth)


class VisionTransformer(nn.Module):
    """Images (b, 3, image_size, image_size) to logits (b, num_classes), read off a class token.

    Initialised as in the paper's own code: Glorot within blocks, LeCun for the patches, and zeros in the last layer, so
    that the untrained model is indifferent between classes. No dropout.
    """

    def __init__(self, shape: VisionTransformerShape, *, image_size: int, patch_size: int, num_classes: int) -> None:
        super().__init__()
        num_patches = (image_size // patch_size) ** 2
        self.patch_embed = PatchEmbedding(shape.width, patch_size)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + num_patches, shape.width) * POSITION_DEVIATION)
        self.blocks = nn.ModuleList(EncoderBlock(shape) for _ in range(shape.num_blocks))
        self.norm = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.head = nn.Linear(shape.width, num_classes)
        self._initialise()

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images)
        hidden = torch.cat((self.cls_token.expand(len(patches), -1, -1), patches), dim=1) + self.pos_embed
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden[:, 0]))
        return logits

    def _initialise(self) -> None:
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                for weight in module.weight.chunk(3 if name.endswith(".qkv") else 1):  # three layers in one
                    nn.init.xavier_uniform_(weight)
                nn.init.zeros_(module.bias)
        nn.init.zeros_(self.head.weight)
        patches = self.patch_embed.proj
        nn.init.trunc_normal_(patches.weight, std=1 / math.sqrt(patches.weight[0].numel()))
        assert patches.bias is not None
        nn.init.zeros_(patches.bias)


class PatchEmbedding(nn.Module):
    """Cuts images (b, 3, h, w) into square patches and maps each to a vector: (b, number of patches, width)."""

    def __init__(self, width: int, patch_size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, patch_size, stride=patch_size)

    def forward(self, images: Tensor) -> Tensor:
        embedded: Tensor = self.proj(images)
        return embedded.flatten(2).transpose(1, 2)


class EncoderBlock(nn.Module):
    """Self-attention, then two layers with GELU, each added to the residual stream: (b, t, width) to the same."""

    def __init__(self, shape: VisionTransformerShape) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.attn = Attention(shape)
        self.norm2 = nn.LayerNorm(shape.width, eps=NORM_EPSILON)
        self.mlp = MLP(shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attn(self.norm1(hidden))
        residual: Tensor = self.mlp(self.norm2(hidden))
        return hidden + residual


class Attention(nn.Module):
    """Self-attention of every token to every other: (b, t, width) to the same."""

    def __init__(self, shape: VisionTransformerShape) -> None:
        super().__init__()
        self.num_heads = shape.num_heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.proj = nn.Linear(shape.width, shape.width)

    def forward(self, hidden: Tensor) -> Tensor:
        num_images, length, width = hidden.shape
        # (3, b, heads, t, width / heads)
        heads = self.qkv(hidden).view(num_images, length, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.proj(mixed.transpose(1, 2).reshape(num_images, length, width))
        return projected


class MLP(nn.Module):
    """Two layers with GELU between: (b, t, width) to the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, MLP_RATIO * width)
        self.fc2 = nn.Linear(MLP_RATIO * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        outputs: Tensor = self.fc2(functional.gelu(self.fc1(hidden)))
        return outputs
