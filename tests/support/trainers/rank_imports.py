"""The imports of every rank, for the process that ranks are forked from; excluded from their garbage collections.

Each collection would go through all modules for a third of a second, and during the imports collections take a quarter
of the time.
"""

import gc

gc.disable()

import torch._dynamo  # noqa: E402
import torch.distributed.checkpoint  # noqa: E402
import torch.distributed.fsdp  # noqa: E402, F401

import trainers.loop  # noqa: E402, F401

gc.freeze()
gc.enable()
