"""Checks and figures of one command on a machine with a GPU and no network: `tests/gpu/run`, see README.md.

Figures are taken in processes of their own (`runner`), so that one that hangs or dies takes nothing with it. What they
give are the types of `results`, which alone know what is wrong and how it is printed.
"""
