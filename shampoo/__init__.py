"""The Shampoo family of optimizers: `from shampoo import Shampoo`. Needs torch and nothing else."""

from shampoo.optimizer import Shampoo

__all__ = ["Shampoo"]
