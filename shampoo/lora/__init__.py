"""LoRA-RITE: the optimizer of low-rank adapters, its settings, its arithmetic and the groups that it steps.

Never here: members of the Shampoo family, which see one parameter at a time; LoRA-RITE needs both factors of a pair.
"""
