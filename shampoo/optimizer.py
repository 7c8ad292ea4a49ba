"""`Shampoo`: the class that holds hyperparameters and state, and walks over the blocks at every step.

The arithmetic is elsewhere: `block_step` (the whole step of stacked blocks), `preconditioners`, `matrix_roots`,
`grafting`; the geometry in `blocking`, the storage in `buckets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from shampoo.block_step import block_direction
from shampoo.buckets import Bucket, Chunk, make_buckets, state_by_param, state_dtype
from shampoo.hyperparameters import (
    DEFAULT_GRAFTING_EPSILON,
    NAMES,
    Grafting,
    Hyperparameters,
    StepScalars,
    WeightDecayType,
    step_scalars,
)
from shampoo.matrix_roots import eigh_inverse_root

# What a group may hold beside hyperparameters: torch's own keys, and the reference of independent weight decay.
_OTHER_GROUP_KEYS = frozenset({"params", "param_names", "name", "initial_lr", "peak_lr"})


class Shampoo(Optimizer):
    """Kronecker-factored Shampoo with grafting, for tensors of any order.

    Every argument after `params` is a hyperparameter of a parameter group and may be overridden there. All are plain
    numbers, strings and pairs, so `Shampoo(model.parameters(), **json.loads(text))` works. They are documented in
    `Hyperparameters`; the update is in `block_step`. Each is live: a value changed in `param_groups` counts from the
    next step, and one that shapes the state (`max_preconditioner_dim`, `grafting`, whether `betas[0]` and `momentum`
    are 0) raises when it is changed.

    State is allocated here, so the model must be on its device already. It is at least float32. A parameter without
    a gradient is left alone, and has its own step count; one whose gradient's norm is not finite is left alone too,
    and counted in `state[param]["num_skipped"]`. Finding that out reads one number per gradient from the device. A
    factor whose root cannot be computed keeps its previous one, counted per block in `num_failed_roots`.

    Raises:
        ValueError: an argument is illegal or would have no effect; the message holds the values.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float = 1.5e-3,
        *,
        betas: Sequence[float] = (0.9, 0.999),
        beta3: float | None = None,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        weight_decay_type: WeightDecayType = "decoupled",
        momentum: float = 0.0,
        nesterov: bool = False,
        max_preconditioner_dim: int = 1024,
        precondition_frequency: int = 50,
        start_preconditioning_step: int | None = None,
        statistics_frequency: int = 1,
        grafting: Grafting = "adam",
        grafting_beta2: float | None = None,
        grafting_epsilon: float = DEFAULT_GRAFTING_EPSILON,
        exponent_override: float | None = None,
        use_bias_correction: bool = True,
    ) -> None:
        arguments = locals()
        defaults = {name: arguments[name] for name in NAMES}
        defaults["betas"] = Hyperparameters.of_group(defaults).betas
        # Before super().__init__, which adds the groups.
        self._buckets: list[list[Bucket]] = []
        self._structures: list[dict[str, object]] = []
        self._scratch: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, `params` and the hyperparameters that differ, and allocates its state.

        Raises:
            ValueError: a hyperparameter is illegal or unknown, or a parameter is not a real floating-point tensor.
        """
        # Everything is checked on a copy: a group that is refused leaves nothing behind.
        for name in param_group:
            if name not in NAMES and name not in _OTHER_GROUP_KEYS:
                raise ValueError(f"unknown hyperparameter {name!r} = {param_group[name]!r} (known: {', '.join(NAMES)})")
        h = Hyperparameters.of_group({**self.defaults, **param_group})
        given = param_group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        for index, named in enumerate(params):
            param = named[1] if isinstance(named, tuple) else named
            if isinstance(param, Tensor) and not param.is_floating_point():
                raise ValueError(f"parameter {index} must be real and floating-point, got {param.dtype}")
        tensors = [named[1] if isinstance(named, tuple) else named for named in params]
        if len({id(tensor) for tensor in tensors}) != len(tensors):
            raise ValueError(f"a parameter appears twice in one group of {len(tensors)} parameters")
        super().add_param_group({**param_group, "params": params})
        group = self.param_groups[-1]
        group["betas"] = h.betas
        group.setdefault("peak_lr", group["lr"])
        self._allocate(group, h)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Takes one step; with a closure, evaluates it first and gives its value.

        Every block goes through the same phases: its owner computes the direction from gradient and state, directions
        are gathered (with one process that is nothing), and they are applied. Here a chunk is applied as soon as it
        is computed, while it is in the cache.

        Raises:
            ValueError: a hyperparameter was changed to an illegal value, or one that shapes the state was changed;
                nothing has moved then.
            RuntimeError: a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # All groups are checked before the first one moves.
        checked = [Hyperparameters.of_group(group) for group in self.param_groups]
        for h, group, structure in zip(checked, self.param_groups, self._structures, strict=True):
            h.require_structure(structure)
            _require_peak_lr(h, group["peak_lr"])
        for h, group, buckets in zip(checked, self.param_groups, self._buckets, strict=True):
            self._step_group(group, buckets, h)
        return loss

    def _step_group(self, group: Mapping[str, Any], buckets: Sequence[Bucket], h: Hyperparameters) -> None:
        steps = self._advance(group["params"])
        # Regions are strided views of contiguous tensors; other layouts go through a contiguous copy.
        weights = {param: param if param.is_contiguous() else param.contiguous() for param in steps}
        gradients = {param: _gradient(param).contiguous() for param in steps}
        if weights and h.weight_decay > 0 and h.weight_decay_type != "l2":
            torch._foreach_mul_(list(weights.values()), 1 - _decay_per_step(h, group["peak_lr"]))
        scalars = {t: step_scalars(h, t) for t in set(steps.values())}
        for bucket in buckets:
            for chunk in bucket.chunks(steps):
                self._step_chunk(bucket, chunk, weights, gradients, h, scalars[chunk.step])
        for param, weight in weights.items():
            if weight is not param:
                param.copy_(weight)

    def _advance(self, params: Sequence[Tensor]) -> dict[Tensor, int]:
        """Counts the step of every parameter that takes part in it; gives its number by parameter."""
        present = [param for param in params if param.grad is not None and param.numel() > 0]
        gradients = [_gradient(param) for param in present]
        by_dtype: dict[torch.dtype, list[int]] = {}
        for index, param in enumerate(present):
            by_dtype.setdefault(state_dtype(param.dtype), []).append(index)
        # A norm that overflows is refused as well: so would the entries of G Gᵀ.
        norms = {
            index: norm
            for dtype, indices in by_dtype.items()
            for index, norm in zip(
                indices, torch._foreach_norm([gradients[i] for i in indices], 2, dtype=dtype), strict=True
            )
        }
        steps: dict[Tensor, int] = {}
        for index, finite in sorted(_finite(norms).items()):
            param = present[index]
            counter = "step" if finite else "num_skipped"
            self.state[param][counter] += 1
            if finite:
                steps[param] = self.state[param]["step"]
        return steps

    def _step_chunk(
        self,
        bucket: Bucket,
        chunk: Chunk,
        weights: Mapping[Tensor, Tensor],
        gradients: Mapping[Tensor, Tensor],
        h: Hyperparameters,
        at: StepScalars,
    ) -> None:
        state = bucket.state.rows(chunk.start, chunk.stop)
        first = chunk.pieces[0].param
        scratch = self._scratch_of(first.device, state_dtype(first.dtype), (chunk.stop - chunk.start, *bucket.block))
        for piece in chunk.pieces:
            view, rows = piece.region.view, slice(piece.start - chunk.start, piece.stop - chunk.start)
            G = scratch[0][rows].view(piece.region.grid + bucket.block)
            G.copy_(view(gradients[piece.param]))
            if h.weight_decay > 0 and h.weight_decay_type == "l2":
                G.add_(view(weights[piece.param]), alpha=h.weight_decay)
        P = block_direction(scratch, state, h, at, eigh_inverse_root)
        for piece in chunk.pieces:
            view, rows = piece.region.view, slice(piece.start - chunk.start, piece.stop - chunk.start)
            view(weights[piece.param]).add_(P[rows].view(piece.region.grid + bucket.block), alpha=-h.lr)

    def _scratch_of(
        self, device: torch.device, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Three uninitialised tensors of this shape, in memory kept from step to step.

        Fresh temporaries cost five times the arithmetic on the CPU: the allocator maps and unmaps large ones.
        """
        numel = torch.Size(shape).numel()
        slab = self._scratch.get((device, dtype))
        if slab is None or slab.shape[1] < numel:
            slab = self._scratch[device, dtype] = torch.empty(3, numel, device=device, dtype=dtype)
        return slab[0, :numel].view(shape), slab[1, :numel].view(shape), slab[2, :numel].view(shape)

    def _allocate(self, group: Mapping[str, Any], h: Hyperparameters) -> None:
        buckets = make_buckets(group["params"], h)
        self._buckets.append(buckets)
        self._structures.append(h.structure)
        views = state_by_param(buckets)
        for param in group["params"]:
            self.state[param] = {"step": 0, "num_skipped": 0, **views.get(param, {})}

    def state_dict(self) -> dict[str, Any]:
        """State and hyperparameters as plain values and tensors of their own memory: a snapshot.

        Loads with `torch.load(..., weights_only=True)`. Copies, because a view would pickle its whole bucket.
        """
        packed = super().state_dict()
        return {
            **packed,
            "state": {key: _own_memory(state) for key, state in packed["state"].items()},
            "param_groups": [dict(group) for group in packed["param_groups"]],
        }

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over state and hyperparameters of a `state_dict()`; resumed training is bit-identical.

        Everything is checked before anything is written. torch's own version is replaced because it casts the state
        to the parameters' dtype.

        Raises:
            ValueError: groups, names, shapes or dtypes do not fit these parameters, or hyperparameters that shape the
                state differ.
        """
        state_dict = dict(state_dict)
        for pre_hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = pre_hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        saved_groups: list[dict[str, Any]] = state_dict["param_groups"]
        sizes = [len(group["params"]) for group in self.param_groups]
        saved_sizes = [len(group["params"]) for group in saved_groups]
        if sizes != saved_sizes:
            raise ValueError(f"checkpoint has groups of {saved_sizes} parameters, the optimizer of {sizes}")
        pairs: list[tuple[Mapping[str, Any], dict[str, Any]]] = []
        for group, saved, structure in zip(self.param_groups, saved_groups, self._structures, strict=True):
            Hyperparameters.of_group(saved).require_structure(structure)
            for param, key in zip(group["params"], saved["params"], strict=True):
                if key not in state_dict["state"]:
                    raise ValueError(f"checkpoint lacks the state of parameter {key}")
                source, target = state_dict["state"][key], self.state[param]
                _require_same_layout(source, target, parameter=key)
                pairs.append((source, target))
        for source, target in pairs:
            _copy_state(source, target)
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
            group["betas"] = tuple(group["betas"])
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "state": {param: _own_memory(state) for param, state in self.state.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state["state"]
        self._buckets, self._structures, self._scratch = [], [], {}
        super().__setstate__({**state, "state": {}})
        for group in self.param_groups:
            self._allocate(group, Hyperparameters.of_group(group))
            for param in group["params"]:
                _copy_state(saved[param], self.state[param])


def _gradient(param: Tensor) -> Tensor:
    gradient = param.grad
    assert gradient is not None
    if gradient.layout != torch.strided:
        raise RuntimeError(f"Shampoo needs dense gradients, got {gradient.layout} for shape {tuple(param.shape)}")
    return gradient


def _finite(norms: Mapping[int, Tensor]) -> dict[int, bool]:
    """Which of these scalars are finite; one read from each device and dtype."""
    together: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for index, norm in norms.items():
        together.setdefault((norm.device, norm.dtype), []).append(index)
    return {
        index: finite
        for indices in together.values()
        for index, finite in zip(indices, torch.stack([norms[i] for i in indices]).isfinite().tolist(), strict=True)
    }


def _require_peak_lr(h: Hyperparameters, peak_lr: float) -> None:
    if h.weight_decay > 0 and h.weight_decay_type == "independent" and not peak_lr > 0:
        raise ValueError(f"independent weight decay needs peak_lr > 0, got peak_lr={peak_lr}, lr={h.lr}")


def _decay_per_step(h: Hyperparameters, peak_lr: float) -> float:
    """The share of the weights that decoupled or independent weight decay takes away."""
    return h.lr * h.weight_decay if h.weight_decay_type == "decoupled" else h.lr / peak_lr * h.weight_decay


def _own_memory(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.clone() if isinstance(value, Tensor) else value for name, value in state.items()}


def _copy_state(source: Mapping[str, Any], target: dict[str, Any]) -> None:
    """Writes a parameter's state into the views that are its place in the buckets."""
    for name, value in source.items():
        if isinstance(value, Tensor):
            target[name].copy_(value)
        else:
            target[name] = value


def _require_same_layout(source: Mapping[str, Any], target: Mapping[str, Any], *, parameter: object) -> None:
    if set(source) != set(target):
        raise ValueError(f"state of parameter {parameter} holds {sorted(source)}, expected {sorted(target)}")
    for name, expected in target.items():
        found = source[name]
        if isinstance(expected, Tensor):
            if not isinstance(found, Tensor) or found.shape != expected.shape or found.dtype != expected.dtype:
                described = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
                raise ValueError(
                    f"state {name!r} of parameter {parameter} is {described}, "
                    f"expected {expected.dtype} {tuple(expected.shape)}"
                )
        elif not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise ValueError(f"state {name!r} of parameter {parameter} must be a count, got {found!r}")
