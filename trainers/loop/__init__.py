"""The training loop: one trial on one rank, from its first step to its last. Never how a model is spread over ranks,
nor what a checkpoint looks like."""

from trainers.loop.training import train

__all__ = ["train"]
