"""Spaces that the tests of search policies share."""

from __future__ import annotations

from search_spaces import Categorical, Float, Integer, SearchSpace

CONDITIONAL = SearchSpace(
    "shampoo",
    (
        Categorical("grafting", ("adam", "sgd")),
        Float("lr", 1e-4, 1e-1, scale="log", when={"grafting": ("adam",)}),
        Float("lr", 1e-3, 10.0, scale="log", when={"grafting": ("sgd",)}),
        Float("betas[1]", 0.9, 0.999, scale="reverse_log"),
        Integer("precondition_frequency", 1, 100, scale="log"),
        Integer("statistics_frequency", 1, 3),
        Categorical("schedule.decay", ("cosine", "linear", "wsd")),
        Float("schedule.decay_fraction", 0.1, 0.5, when={"schedule.decay": ("wsd",)}),
    ),
)
