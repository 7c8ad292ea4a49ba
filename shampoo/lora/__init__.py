"""LoRA-RITE: the optimizer of low-rank adapters, its settings, its arithmetic and the groups that it steps.

What never stands here is a member of the Shampoo family: those see one parameter at a time, and this one needs both
factors of a pair.
"""
