"""`Shampoo`: the class that holds hyperparameters and state, and walks over the blocks at every step.

The arithmetic is elsewhere: `block_step` (the whole step of stacked blocks), `refresh`, `matrix_roots`, `eigenbases`,
`grafting`; the geometry in `blocking`, the storage in `buckets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from shampoo.block_step import Scratch, Solved, block_direction
from shampoo.buckets import Bucket, make_buckets, state_by_param, state_dtype
from shampoo.diagnostics import Diagnostics, diagnose
from shampoo.distributed.layout import require_supported
from shampoo.failures import RefreshFailures
from shampoo.hyperparameters import (
    DEFAULT_GRAFTING_EPSILON,
    DEFAULTS,
    NAMES,
    AdjustLr,
    EpsilonType,
    Grafting,
    Hyperparameters,
    LargeDimMethod,
    LowPrecisionWeights,
    Preconditioner,
    ProductDtype,
    Solver,
    StateDtype,
    WeightDecayType,
    unused,
)
from shampoo.memory import require_memory
from shampoo.refresh_ahead import ChunkStep, chunk_steps, solve_ahead
from shampoo.state_transfer import copy_state, own_memory, require_same_layout
from shampoo.weights import Weights, finite_gradients, gradient_of, per_row

# What a group may hold beside hyperparameters: torch's own keys, and the reference of independent weight decay.
_OTHER_GROUP_KEYS = frozenset({"params", "param_names", "name", "initial_lr", "peak_lr"})


class Shampoo(Optimizer):
    """The Shampoo family: Kronecker-factored Shampoo with grafting, SOAP, KL-Shampoo, spectral descent, and plain
    AdamW and SGD beside them, for tensors of any order.

    Every argument after `params` is a hyperparameter of a parameter group and may be overridden there. All are plain
    numbers, strings and pairs, so `Shampoo(model.parameters(), **json.loads(text))` works. They are documented in
    `Hyperparameters`; the update is in `block_step`. Each is live: a value changed in `param_groups` counts from the
    next step, and one that shapes the state raises when it is changed. A group that overrides `preconditioner` does
    not inherit what its member has no use for.

    State is allocated here, so the model must be on its device already. It is at least float32, except for Kronecker
    factors if `state_dtype` says so. A parameter without a gradient is left alone, and has its own step count. One
    whose gradient's norm is not finite does not move, and is counted in `state[param]["num_skipped"]`; on the CPU its
    state does not move either, elsewhere, where the host would have to wait to know, its averages take the gradient
    as zero. A refresh that fails keeps the previous root and is counted in `num_failed`; `diagnostics` sums it up.

    Raises:
        ValueError: an argument is illegal or would have no effect; the message holds the values.
        MemoryError: the state does not fit into what is left of the device's memory; the message says why.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float = 1.5e-3,
        *,
        betas: Sequence[float] = (0.9, 0.999),
        beta3: float | None = None,
        shampoo_beta: float | None = None,
        epsilon: float = 1e-6,
        epsilon_type: EpsilonType = "relative",
        weight_decay: float = 0.0,
        weight_decay_type: WeightDecayType = "decoupled",
        momentum: float = 0.0,
        nesterov: bool = False,
        preconditioner: Preconditioner = "shampoo",
        solver: Solver | None = None,
        max_preconditioner_dim: int = 1024,
        large_dim_method: LargeDimMethod = "blocking",
        one_sided: bool = False,
        precondition_frequency: int | None = None,
        start_preconditioning_step: int | None = None,
        statistics_frequency: int | None = None,
        stagger_refresh: bool = True,
        refresh_tolerance: float = 0.0,
        grafting: Grafting | None = None,
        grafting_beta2: float | None = None,
        grafting_epsilon: float = DEFAULT_GRAFTING_EPSILON,
        exponent_override: float | None = None,
        pseudo_inverse: bool = False,
        use_bias_correction: bool = True,
        adjust_lr_fn: AdjustLr = "match_rms_adamw",
        state_dtype: StateDtype = "float32",
        product_dtype: ProductDtype = "float32",
        low_precision_weights: LowPrecisionWeights = "nearest",
        max_failed_refreshes: int = 3,
    ) -> None:
        arguments = locals()
        defaults = {name: arguments[name] for name in NAMES}
        defaults["betas"] = Hyperparameters.of_group(defaults).betas
        # Before super().__init__, which adds the groups.
        self._buckets: list[list[Bucket]] = []
        self._positions: dict[Tensor, int] = {}
        self._structures: list[dict[str, object]] = []
        self._scratch: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._failures = RefreshFailures()
        super().__init__(params, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, `params` and the hyperparameters that differ, and allocates its state.

        Raises:
            ValueError: a hyperparameter is illegal or unknown, or a parameter is not a real floating-point tensor.
            MemoryError: the state does not fit into what is left of the device's memory.
        """
        # Everything is checked on a copy: a group that is refused leaves nothing behind.
        for name in param_group:
            if name not in NAMES and name not in _OTHER_GROUP_KEYS:
                raise ValueError(f"unknown hyperparameter {name!r} = {param_group[name]!r} (known: {', '.join(NAMES)})")
        inherited = _inherited(self.defaults, param_group.get("preconditioner", self.defaults["preconditioner"]))
        h = Hyperparameters.of_group({**inherited, **param_group})
        given = param_group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        tensors = [named[1] if isinstance(named, tuple) else named for named in params]
        for index, param in enumerate(tensors):
            if isinstance(param, Tensor) and not param.is_floating_point():
                raise ValueError(f"parameter {index} must be real and floating-point, got {param.dtype}")
            if isinstance(param, Tensor) and any(
                d > 1 and s == 0 for d, s in zip(param.shape, param.stride(), strict=True)
            ):
                raise ValueError(
                    f"elements of parameter {index} share memory (an expanded view): shape {tuple(param.shape)}, "
                    f"strides {param.stride()}"
                )
        require_supported(tensors)
        if len({id(tensor) for tensor in tensors}) != len(tensors):
            raise ValueError(f"a parameter appears twice in one group of {len(tensors)} parameters")
        if h.low_precision_weights != "nearest" and all(param.dtype.itemsize > 2 for param in tensors):
            raise ValueError(
                f"low_precision_weights={h.low_precision_weights!r} has no effect on parameters of "
                f"{sorted({str(param.dtype) for param in tensors})}"
            )
        require_memory(tensors, h)
        super().add_param_group({**inherited, **param_group, "params": params})
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
            RuntimeError: a gradient is sparse; nothing has moved then.
            RefreshFailed: a factor's refresh failed more than `max_failed_refreshes` times in a row; a RuntimeError.
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
            for param in group["params"]:
                gradient_of(param)
        for h, group, buckets in zip(checked, self.param_groups, self._buckets, strict=True):
            self._step_group(group, buckets, h)
        self._failures.raise_if_too_many()
        return loss

    def _step_group(self, group: Mapping[str, Any], buckets: Sequence[Bucket], h: Hyperparameters) -> None:
        present = [param for param in group["params"] if param.grad is not None and param.numel() > 0]
        finite = finite_gradients(present, [self.state[param]["num_skipped"] for param in present])
        steps: dict[Tensor, int] = {}
        for param in finite.taking_part:
            self.state[param]["step"] += 1
            steps[param] = self.state[param]["step"]
        weights = Weights(steps, self.state, h, positions=self._positions)
        kept = 1 - _decay_per_step(h, group["peak_lr"])
        work = chunk_steps(buckets, steps, h)
        solved = solve_ahead(work, h, lambda item: self._gradient(item, weights, finite.rows(item.chunk.pieces), h)[0])
        for index, item in enumerate(work):
            chunk = item.chunk
            is_finite = finite.rows(chunk.pieces)
            scratch = self._gradient(item, weights, is_finite, h)
            P = self._direction(item, scratch, h, solved.get(index))
            if is_finite is None:
                weights.move(chunk, P, h.lr, kept=kept)
            else:
                spare = [x for x in scratch if x is not P][:2]
                weights.move_where_finite(chunk, P, h.lr, kept=kept, is_finite=is_finite, spare=spare)
        weights.write_back()

    def _gradient(self, item: ChunkStep, weights: Weights, is_finite: Tensor | None, h: Hyperparameters) -> Scratch:
        """Scratch memory of which the first tensor holds the gradient of a chunk, L2 decay included, and 0 in rows
        where the device alone knows that it is not finite."""
        chunk = item.chunk
        scratch = self._scratch_of(item.bucket.like, (chunk.stop - chunk.start, *item.bucket.block))
        for G, gradients in chunk.aligned(scratch[0], weights.gradients):
            torch._foreach_copy_(G, gradients)
        if h.weight_decay > 0 and h.weight_decay_type == "l2":
            for G, decayed in chunk.aligned(scratch[0], weights.of):
                torch._foreach_add_(G, decayed, alpha=h.weight_decay)
        if is_finite is not None:
            scratch[0].masked_fill_(~per_row(is_finite, scratch[0]), 0.0)
        return scratch

    def _direction(self, item: ChunkStep, scratch: Scratch, h: Hyperparameters, solved: Solved | None) -> Tensor:
        """The direction of a chunk from its gradient, scratch[0]; what has been solved ahead includes it already."""
        bucket, chunk, due = item.bucket, item.chunk, item.due
        P = block_direction(
            scratch,
            chunk.state,
            h,
            item.at,
            step=item.step,
            due=due,
            all_refreshed=bucket.all_refreshed,
            solved=solved,
        )
        for side, _, _ in due:
            counter = chunk.state.sides[side].num_failed_in_a_row
            if counter is not None:
                shape = tuple(chunk.pieces[0].param.shape)
                where = f"factor {side} of a block {bucket.block} of a parameter {shape}"
                self._failures.note(counter, limit=h.max_failed_refreshes, where=where)
        if due and not bucket.all_refreshed:
            bucket.look_at_refreshes()
        return P

    def _scratch_of(self, like: Tensor, shape: tuple[int, ...]) -> Scratch:
        """Three uninitialised tensors of this shape, in memory kept from step to step.

        Fresh temporaries cost five times the arithmetic on the CPU: the allocator maps and unmaps large ones.
        """
        numel = torch.Size(shape).numel()
        slab = self._scratch.get((like.device, like.dtype))
        if slab is None or slab.shape[1] < numel:
            slab = self._scratch[like.device, like.dtype] = like.new_empty(3, numel)
        return slab[0, :numel].view(shape), slab[1, :numel].view(shape), slab[2, :numel].view(shape)

    def _allocate(self, group: Mapping[str, Any], h: Hyperparameters) -> None:
        buckets = make_buckets(group["params"], h)
        self._buckets.append(buckets)
        self._structures.append(h.structure)
        views = state_by_param(buckets)
        for param in group["params"]:
            self._positions[param] = len(self._positions)
            num_skipped = torch.zeros((), dtype=torch.int64, device=param.device)
            self.state[param] = {"step": 0, "num_skipped": num_skipped, **views.get(param, {})}
            if h.low_precision_weights == "master" and state_dtype(param.dtype) != param.dtype:
                self.state[param]["master"] = param.detach().to(
                    state_dtype(param.dtype), memory_format=torch.contiguous_format
                )

    def diagnostics(self) -> Diagnostics:
        """Condition numbers, update-to-weight and grafting ratios, residuals and failures, as of now.

        Computed from the state and the gradients that the parameters hold, at the price of about two steps without
        statistics; changes nothing.
        """
        checked = [Hyperparameters.of_group(group) for group in self.param_groups]
        return diagnose(list(zip(self.param_groups, checked, self._buckets, strict=True)), self.state)

    def state_dict(self) -> dict[str, Any]:
        """State and hyperparameters as plain values and tensors of their own memory: a snapshot.

        Loads with `torch.load(..., weights_only=True)`. Copies, because a view would pickle its whole bucket.
        """
        packed = super().state_dict()
        return {
            **packed,
            "state": {key: own_memory(state) for key, state in packed["state"].items()},
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
                require_same_layout(source, target, parameter=key)
                pairs.append((source, target))
        for source, target in pairs:
            copy_state(source, target)
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
            group["betas"] = tuple(group["betas"])
        self._look_at_refreshes()
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def _look_at_refreshes(self) -> None:
        for buckets in self._buckets:
            for bucket in buckets:
                bucket.look_at_refreshes()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "state": {param: own_memory(state) for param, state in self.state.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved = state["state"]
        self._buckets, self._positions, self._structures, self._scratch = [], {}, [], {}
        self._failures = RefreshFailures()
        super().__setstate__({**state, "state": {}})
        for group in self.param_groups:
            self._allocate(group, Hyperparameters.of_group(group))
            for param in group["params"]:
                copy_state(saved[param], self.state[param])
        self._look_at_refreshes()


def _inherited(defaults: Mapping[str, Any], preconditioner: Preconditioner) -> dict[str, Any]:
    """The constructor's arguments as far as this member of the family has a use for them, else their defaults."""
    if preconditioner == defaults["preconditioner"]:
        return dict(defaults)
    reset = set(unused(preconditioner))
    takes_grafting = preconditioner in ("shampoo", "none")
    if not takes_grafting or (preconditioner == "none" and defaults["grafting"] == "none"):
        reset |= {"grafting"}
    if preconditioner in ("soap", "kl") and defaults["solver"] == "coupled_newton":
        reset |= {"solver"}
    return {name: DEFAULTS[name] if name in reset else value for name, value in defaults.items()}


def _require_peak_lr(h: Hyperparameters, peak_lr: float) -> None:
    if h.weight_decay > 0 and h.weight_decay_type == "independent" and not peak_lr > 0:
        raise ValueError(f"independent weight decay needs peak_lr > 0, got peak_lr={peak_lr}, lr={h.lr}")


def _decay_per_step(h: Hyperparameters, peak_lr: float) -> float:
    """The share of the weights that decoupled or independent weight decay takes away."""
    if h.weight_decay == 0 or h.weight_decay_type == "l2":
        return 0.0
    return h.lr * h.weight_decay if h.weight_decay_type == "decoupled" else h.lr / peak_lr * h.weight_decay
