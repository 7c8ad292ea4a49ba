"""The Shampoo family of optimizers: `from shampoo import Shampoo`. Needs torch and nothing else."""

# A package of the distribution shampoo-tuner: trainers.installation.distribution looks for this line.

from shampoo import cost
from shampoo.averaging import WeightAveraging
from shampoo.diagnostics import Diagnostics
from shampoo.hyperparameters import Hyperparameters
from shampoo.optimizer import Shampoo
from shampoo.param_groups import param_groups
from shampoo.starting_values import starting_values
from shampoo.step.failures import RefreshFailed

__all__ = [
    "Diagnostics",
    "Hyperparameters",
    "RefreshFailed",
    "Shampoo",
    "WeightAveraging",
    "cost",
    "param_groups",
    "starting_values",
]
