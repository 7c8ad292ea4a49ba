"""The imports of every rank, for the process that ranks are copies of; left out of their garbage collections.

Each of those would look at all modules for a third of a second, and during the imports they take a quarter of the time.
"""

import gc

gc.disable()

import torch._dynamo  # noqa: E402
import torch.distributed.checkpoint  # noqa: E402
import torch.distributed.fsdp  # noqa: E402, F401

import trainers.loop  # noqa: E402, F401

gc.freeze()
gc.enable()
