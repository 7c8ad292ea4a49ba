"""The training loop: one trial on one rank, from its first step to its last. Never here: how a model is spread over
ranks, and the format of a checkpoint."""

from trainers.loop.training import train

__all__ = ["train"]
