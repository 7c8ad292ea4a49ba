"""The Shampoo family of optimizers, and LoRA-RITE for low-rank adapters. Needs torch and nothing else.

Never here: training loops, data, and the search for hyperparameters.
"""

# A package of the distribution shampoo-tuner: trainers.installation.distribution looks for this line.

from shampoo import cost
from shampoo.averaging import WeightAveraging
from shampoo.diagnostics import Diagnostics
from shampoo.hyperparameters import Hyperparameters
from shampoo.lora.groups import lora_param_groups
from shampoo.lora.lora_rite import LoraRite
from shampoo.optimizer import Shampoo
from shampoo.param_groups import param_groups
from shampoo.starting_values import starting_values
from shampoo.step.failures import RefreshFailed

__all__ = [
    "Diagnostics",
    "Hyperparameters",
    "LoraRite",
    "RefreshFailed",
    "Shampoo",
    "WeightAveraging",
    "cost",
    "lora_param_groups",
    "param_groups",
    "starting_values",
]
