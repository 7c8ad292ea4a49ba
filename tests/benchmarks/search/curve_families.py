"""Synthetic learning curves: random tasks of several kinds, to study search policies on what no table was made for.

`task(family, seed)` gives an objective (`config -> list of values, larger is better`) and its space. A task draws its
own dimension, which parameters matter and how much, the place and sharpness of the optimum, ripples that make other
basins, how the final value ties to the speed of learning, and noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from search_spaces import Categorical, Float, Integer, Parameter, Scalar, SearchSpace
from service.scheduler.policy.searching.encoding import Encoding

Family: TypeAlias = Literal["plain", "crossing", "noisy", "diverging", "conditional", "loss"]
FAMILIES: tuple[Family, ...] = get_args(Family)
NUM_UNITS = {"plain": 52, "crossing": 52, "noisy": 30, "diverging": 40, "conditional": 24, "loss": 50}

Objective: TypeAlias = Callable[[Mapping[str, Scalar]], list[float]]


@dataclass(frozen=True, slots=True)
class SyntheticTask:
    objective: Objective
    space: SearchSpace
    with_seed: Callable[[Mapping[str, Scalar], int], list[float]]
    """The objective of a config trained with a seed, which draws the noise; with seed 0 it is `objective`."""


def _space(family: Family, rng: np.random.Generator) -> SearchSpace:
    floats: list[Parameter] = [
        Float("lr", 1e-4, 1e-1, scale="log"),
        Float("weight_decay", 1e-5, 1e-1, scale="log"),
        Float("betas[0]", 0.5, 0.999, scale="reverse_log"),
        Float("betas[1]", 0.9, 0.9999, scale="reverse_log"),
        Float("epsilon", 1e-10, 1e-2, scale="log"),
        Integer("precondition_frequency", 1, 100, scale="log"),
        Float("schedule.warmup_fraction", 0.01, 0.5, scale="log"),
        Integer("start_preconditioning_step", 1, 1000, scale="log"),
    ]
    if family == "conditional":
        return SearchSpace(
            "shampoo",
            (
                Categorical("grafting", ("adam", "sgd", "rmsprop")),
                *floats[:4],
                Float("momentum", 0.5, 0.99, scale="reverse_log", when={"grafting": ("sgd",)}),
                Float("grafting_beta2", 0.9, 0.999, scale="reverse_log", when={"grafting": ("adam", "rmsprop")}),
                Categorical("schedule.decay", ("cosine", "wsd")),
                Float("schedule.decay_fraction", 0.05, 0.8, when={"schedule.decay": ("wsd",)}),
            ),
        )
    return SearchSpace("shampoo", tuple(floats[: int(rng.integers(4, 9))]))


def task(family: Family, seed: int) -> SyntheticTask:
    """The task of a family that `seed` draws."""
    rng = np.random.default_rng([FAMILIES.index(family), seed])
    space = _space(family, rng)
    encoding = Encoding(space)
    dims, num_units = encoding.num_dimensions, NUM_UNITS[family]
    lr = 1 if family == "conditional" else 0
    badness = _landscape(rng, encoding, lr)
    speed, gap = _ripples(rng, dims, scale=0.7), _ripples(rng, dims, scale=1.0)
    speed_of_lr, gap_of_lr = rng.uniform(0.3, 1.2), rng.uniform(0.5, 1.5)
    gap_height = rng.uniform(0.05, 0.35) if family in ("crossing", "conditional", "loss") else rng.uniform(0.0, 0.15)
    own_height = rng.uniform(0.01, 0.08)
    flatness = rng.uniform(0.8, 2.5)
    noise = {"plain": 0.003, "crossing": 0.003, "noisy": 0.03}.get(family, 0.006)
    cliff, tilt = rng.uniform(0.65, 0.9), rng.normal(0, 0.3, dims)
    salt = int(rng.integers(2**31))
    times = np.arange(1, num_units + 1) / num_units

    def objective(config: Mapping[str, Scalar], seed: int = 0) -> list[float]:
        x = encoding.encode(config)
        own = np.random.default_rng([salt, *(int(1e6 * position) for position in x), *([seed] if seed else [])])
        relative = badness(x) ** flatness
        final = 1 - relative / (1 + relative)  # the median config has about 0.5
        rate = 0.9 * math.exp(speed_of_lr * (x[lr] - 0.5) + 0.35 * speed(x) + 0.1 * own.normal())
        learned = (1 - (1 + times / 0.05) ** -rate) / (1 - (1 + 1 / 0.05) ** -rate)
        own_gap = max(0.0, gap_height * (1 + gap(x) + gap_of_lr * (x[lr] - 0.5))) + own_height * own.normal()
        values = final * learned - own_gap * np.log(times) / math.log(0.1) * (1 - times**4)
        values += noise * own.normal(size=num_units) + 0.5 * noise * own.normal()
        if family == "loss":  # long tails on the bad side, as losses have them
            values = -np.exp(2.5 * (1 - values))
        if family in ("diverging", "loss", "conditional") and x[lr] + 0.3 * tilt @ (x - 0.5) > cliff:
            cut = int(min(num_units - 1, 1 + own.exponential(num_units / 6)))
            values = np.append(values[:cut], -np.inf)
        return [float(value) for value in values]

    return SyntheticTask(objective, space, objective)


def _landscape(rng: np.random.Generator, encoding: Encoding, lr: int) -> Callable[[np.ndarray], float]:
    """How bad a config is: 0 is the best there is, 1 the median. A bowl, tilted and rippled into several basins."""
    dims = encoding.num_dimensions
    importance = rng.dirichlet(np.full(dims, 0.6)) + 0.02
    importance[encoding.is_categorical] *= 0.3
    importance[lr] += 0.3
    optimum, sharpness = rng.uniform(0.15, 0.85, dims), rng.uniform(1.2, 2.2)
    interaction = rng.normal(0, 0.2, (dims, dims)) * np.sqrt(np.outer(importance, importance))
    ripples, height = _ripples(rng, dims, scale=rng.uniform(1.5, 3.0)), rng.uniform(0.0, 0.06)

    def raw(x: np.ndarray) -> float:
        u = 2 * (x - optimum)
        return float(importance @ np.abs(u) ** sharpness + u @ interaction @ u + height * ripples(x))

    sample = encoding.snap(np.concatenate([rng.random((3000, dims)), optimum + 0.1 * rng.normal(size=(500, dims))]))
    found = np.array([raw(x) for x in sample])
    least, middle = found.min() - 0.02 * found.std(), float(np.median(found[:3000]))
    return lambda x: max(0.0, raw(x) - least) / (middle - least)


def _ripples(rng: np.random.Generator, dims: int, *, scale: float) -> Callable[[np.ndarray], float]:
    """A random smooth function of about unit variance."""
    weights, phases = rng.normal(size=(24, dims)) * scale * 3 / math.sqrt(dims), rng.uniform(0, 2 * math.pi, 24)
    heights = rng.normal(size=24) / math.sqrt(12)
    return lambda x: float(heights @ np.sin(weights @ x + phases))


def space_sample(space: SearchSpace, number: int, *, seed: int = 0) -> list[dict[str, Scalar]]:
    """Random configs of a space."""
    rng = random.Random(f"{seed}/sample")
    return [space.sample(rng) for _ in range(number)]
