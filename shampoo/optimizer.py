"""`Shampoo`: the class that holds hyperparameters and state, and walks over the blocks at every step.

The arithmetic is elsewhere: `block_step` (the whole step of stacked blocks), `refresh`, `inverse_roots`, `eigenbases`,
`grafting`; the geometry in `blocking`, the storage in `buckets`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from shampoo.choices import (
    AdjustLr,
    CommunicationDtype,
    Distributed,
    EpsilonType,
    Grafting,
    LargeDimMethod,
    LowPrecisionWeights,
    Preconditioner,
    ProductDtype,
    Solver,
    StateDtype,
    WeightDecayType,
)
from shampoo.diagnostics import Diagnostics, Measured, measure, merged, summarise
from shampoo.distributed.block_rows import Rows
from shampoo.distributed.ownership import cost_of_runs
from shampoo.distributed.portable_state import from_portable, to_portable
from shampoo.distributed.sharding_plan import Plan, StandIns, is_shared, reason_for_sharing_nothing
from shampoo.distributed.topology import world_rank, world_size
from shampoo.group_rules import (
    decay_per_step,
    inherited,
    is_trained,
    require_effect_of_distributed,
    require_known_keys,
    require_params,
    require_peak_lr,
)
from shampoo.hyperparameters import DEFAULT_GRAFTING_EPSILON, DEFAULTS, NAMES, SHARING, Hyperparameters
from shampoo.memory import require_memory
from shampoo.state.buckets import Bucket, Piece, make_buckets, state_by_param, state_dtype
from shampoo.state.transfer import copy_state, own_memory, require_same_layout, take_blocks
from shampoo.step.failures import RefreshFailures
from shampoo.step.group_step import GroupStep
from shampoo.step.weights import gradient_of

Loss = TypeVar("Loss")
"""What a closure gives, as a rule a float or a tensor: `step` passes it on."""


class Shampoo(Optimizer):
    """The Shampoo family: Kronecker-factored Shampoo with grafting, SOAP, KL-Shampoo, spectral descent, and plain
    AdamW and SGD beside them, for tensors of any order.

    Every argument after `params` is a hyperparameter of a parameter group and may be overridden there. All are plain
    numbers, strings and pairs, so `Shampoo(model.parameters(), **json.loads(text))` works. They are documented in
    `Hyperparameters`; the update is in `block_step`. Each is live: a value changed in `param_groups` counts from the
    next step, and one that shapes the state raises when it is changed. A group that overrides `preconditioner` does
    not inherit what its member has no use for.

    DTensor parameters (FSDP2, HSDP, SimpleFSDP), and with distributed="lossless" plain ones under DDP, are spread over
    ranks with their state: see `shampoo.distributed`. `share_of_state` says how much of it this rank has, and a warning
    that ranks share nothing, because one block is most of the work.

    State is allocated here, so the model must be on its device already. It is at least float32, except for Kronecker
    factors if `state_dtype` says so. A parameter without a gradient is left alone, and has its own step count. One
    whose gradient's norm is not finite does not move, and is counted in `state[param]["num_skipped"]`; on the CPU its
    state does not move either, elsewhere, where the host would have to wait to know, its averages take the gradient
    as zero. A refresh that fails keeps the previous root and is counted in `num_failed`; `diagnostics` sums it up.

    A parameter that is frozen (`requires_grad=False`) when it is added has no state. The first step at which it
    requires a gradient, or has one all the same, allocates it; ranks that share parameters thaw at the same step. One
    that is frozen later keeps its state.

    Raises:
        ValueError: an argument is illegal or would have no effect; the message holds the values.
        MemoryError: the state does not fit into what is left of the device's memory; the message says why.
    """

    _step_uncompiled: ClassVar[Any] = None
    """A step as the compiler of a whole training step leaves it: what is refreshed is decided step by step, and ranks
    meet in it."""

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
        distributed: Distributed = "auto",
        communication_dtype: CommunicationDtype = "float32",
        num_ranks_per_group: int | None = None,
        reduce_gradients: bool = False,
    ) -> None:
        arguments = locals()
        defaults = {name: arguments[name] for name in NAMES}
        defaults["betas"] = Hyperparameters.of_group(defaults).betas
        # Before super().__init__, which adds the groups.
        self._reset()
        super().__init__(params, defaults)
        # All groups at once, so that the ranks share them evenly.
        self._allocate_groups(first=0)
        self._is_allocated = True
        self._warn_of_sharing_nothing()

    @property
    def share_of_state(self) -> float:
        """Bytes of state that this rank holds, over those that one process would: 1 where nothing is shared."""
        trained = [
            (param, Hyperparameters.of_group(group))
            for group in self.param_groups
            for param in group["params"]
            if param not in self._frozen
        ]
        whole = sum(
            cost_of_runs(tuple(param.shape), None, h, dtype=param.dtype, device=param.device.type).state_bytes
            for param, h in trained
        )
        held = sum(x.nbytes for state in self.state.values() for x in state.values() if isinstance(x, Tensor))
        return held / whole if whole else 1.0

    def _warn_of_sharing_nothing(self) -> None:
        # 1 by choice alone: where it is asked for by `num_ranks_per_group`, nothing has been chosen.
        if self._stand_ins.group_size != 1 or world_rank() != 0:
            return
        groups = [
            ([param for param in group["params"] if param not in self._frozen], Hyperparameters.of_group(group))
            for group in self.param_groups
        ]
        warnings.warn(
            f"distributed='lossless' shares nothing: each of {world_size()} ranks holds all of the state and takes all "
            f"of the step. Ranks share whole blocks, and {reason_for_sharing_nothing(groups)}, which is the same for "
            f"its owner however the rest is shared. A smaller max_preconditioner_dim makes smaller blocks; "
            f"num_ranks_per_group={world_size()} shares the rest all the same",
            RuntimeWarning,
            stacklevel=3,
        )

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, `params` and the hyperparameters that differ, and allocates its state.

        With DTensors all ranks add the same groups; with low_precision_weights="master" that is collective.

        Raises:
            ValueError: a hyperparameter is illegal or unknown, or a parameter is not a real floating-point tensor.
            MemoryError: the state does not fit into what is left of the device's memory.
        """
        # Everything is checked on a copy: a group that is refused leaves nothing behind.
        require_known_keys(param_group)
        values = inherited(self.defaults, param_group.get("preconditioner", self.defaults["preconditioner"]))
        h = Hyperparameters.of_group({**values, **param_group})
        given = param_group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        tensors = [named[1] if isinstance(named, tuple) else named for named in params]
        require_params(tensors, h)
        trained = [param for param in tensors if is_trained(param)]
        plan = self._stand_ins.plan([(trained, h)]) if self._is_allocated else None
        if plan is not None:
            require_memory(list(plan.costs(trained, h)), h, working_bytes=plan.working_bytes())
        super().add_param_group({**values, **param_group, "params": params})
        group = self.param_groups[-1]
        group["betas"] = h.betas
        group.setdefault("peak_lr", group["lr"])
        if plan is not None:
            self._allocate_groups(first=len(self.param_groups) - 1, plan=plan)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Loss]) -> Loss: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None) -> Loss | None:
        """Takes one step; with a closure, evaluates it first and gives its value.

        With DTensor parameters it is collective unless distributed="local": all ranks of their meshes call it, whether
        or not they have gradients, and see the same outcome.

        Raises:
            ValueError: a hyperparameter was changed to an illegal value, or one that shapes the state was changed, or a
                group holds a key that is no hyperparameter; nothing has moved then.
            RuntimeError: a gradient is sparse or does not lie as its parameter, and nothing has moved then; or another
                rank did not take part, and the weights are lost.
            RefreshFailed: a factor's refresh failed more than `max_failed_refreshes` times in a row, on whichever rank;
                a RuntimeError.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_uncompiled(self)
        return loss

    def _step_everything(self) -> None:
        # All groups are checked before the first one moves.
        checked = [Hyperparameters.of_group(group) for group in self.param_groups]
        for h, group, structure in zip(checked, self.param_groups, self._structures, strict=True):
            require_known_keys(group)
            require_effect_of_distributed(group["params"], h)
            h.require_structure(structure)
            require_peak_lr(h, group["peak_lr"])
            for param in group["params"]:
                gradient_of(param)
        self._thaw()
        self._stand_ins.require_gradients()
        shared_on = self._stand_ins.shared_on
        report = None if shared_on is None else functools.partial(self._failures.excess, shared_on)
        with self._stand_ins.rounds(report) as rounds:
            for number in rounds:
                norms = self._stand_ins.norms(number)
                for share in self._shares.get(number, ()):
                    h, group = checked[share.group], self.param_groups[share.group]
                    kept = 1 - decay_per_step(h, group["peak_lr"])
                    self._step_group(
                        share.tensors,
                        share.buckets,
                        h,
                        kept=kept,
                        state=self._state_of,
                        positions=self._positions,
                        norms=norms,
                    )
        if self._stand_ins.largest_report is not None:
            self._failures.raise_together(self._stand_ins.largest_report)
        else:
            self._failures.raise_if_too_many()

    def _reset(self) -> None:
        if Shampoo._step_uncompiled is None:
            # Not as a decorator: it takes as long to import as torch.
            disabled = torch.compiler.disable(Shampoo._step_everything)
            Shampoo._step_uncompiled = staticmethod(disabled)
        self._is_allocated = False
        self._stand_ins = StandIns()
        self._shares: dict[int, list[Share]] = {}
        self._state_of: dict[Tensor, dict[str, Any]] = {}
        self._positions: dict[Tensor, int] = {}
        self._places: dict[Tensor, int] = {}
        self._frozen: dict[Tensor, int] = {}
        self._structures: list[dict[str, object]] = []
        self._failures = RefreshFailures()
        self._step_group = GroupStep(self._failures)

    def _allocate_groups(self, *, first: int, plan: Plan | None = None) -> None:
        """Makes the state of the groups from number `first` on; `plan`, of their parameters, has been checked."""
        members: list[tuple[int, list[Tensor]]] = []
        for number, group in enumerate(self.param_groups[first:], start=first):
            self._register(group)
            members.append((number, [param for param in group["params"] if is_trained(param)]))
            self._frozen |= {param: number for param in group["params"] if not is_trained(param)}
        self._allocate(members, plan)

    def _register(self, group: Mapping[str, Any]) -> None:
        h = Hyperparameters.of_group(group)
        self._structures.append({**h.structure, **h.sharing})
        for param in group["params"]:
            # The place among all parameters, wherever they are stepped.
            self._places[param] = len(self._places)
            # An entry on every rank: torch's checkpoints step an optimizer whose state is empty.
            self.state[param] = {}

    def _thaw(self, also: Collection[Tensor] = ()) -> None:
        """Makes the state of parameters that are trained by now, and had none; the same on all ranks."""
        found = [(number, param) for param, number in self._frozen.items() if is_trained(param) or param in also]
        if not found:
            return
        members = [
            (number, [param for of_group, param in found if of_group == number])
            for number in dict.fromkeys(number for number, _ in found)
        ]
        checked = {number: Hyperparameters.of_group(self.param_groups[number]) for number, _ in members}
        plan = self._stand_ins.plan([(params, checked[number]) for number, params in members])
        for number, params in members:
            require_params(params, checked[number])
            costs = list(plan.costs(params, checked[number]))
            require_memory(costs, checked[number], working_bytes=plan.working_bytes())
        self._allocate(members, plan)
        for _, param in found:
            del self._frozen[param]

    def _allocate(self, members: Sequence[tuple[int, Sequence[Tensor]]], plan: Plan | None = None) -> None:
        """Makes the state of parameters, given with the numbers of their groups, as far as this rank steps them."""
        checked = [Hyperparameters.of_group(self.param_groups[number]) for number, _ in members]
        is_checked = plan is not None
        if plan is None:
            plan = self._stand_ins.plan([(params, h) for (_, params), h in zip(members, checked, strict=True)])
        self._stand_ins.adopt(plan)
        for (number, params), h in zip(members, checked, strict=True):
            if not is_checked:
                require_memory(list(plan.costs(params, h)), h, working_bytes=plan.working_bytes())
            self._allocate_members(number, params, h)
        if any(h.low_precision_weights == "master" for h in checked):
            self._fill_masters({self._stand_ins.of(param) for _, params in members for param in params})

    def _allocate_members(self, number: int, params: Sequence[Tensor], h: Hyperparameters) -> None:
        for round_, stepped in self._stand_ins.by_round(params).items():
            buckets = make_buckets(stepped, h)
            tensors = [one.tensor for one in stepped if one.tensor is not None]
            self._shares.setdefault(round_, []).append(Share(number, tensors, buckets))
            self._state_of.update(state_by_param(buckets))
        for param in params:
            tensor = self._stand_ins.of(param)
            if tensor is None:
                continue
            self._positions[tensor] = self._places[param]
            num_skipped = torch.zeros((), dtype=torch.int64, device=tensor.device)
            self.state[param].update({"step": 0, "num_skipped": num_skipped, **self._state_of.get(tensor, {})})
            self._state_of[tensor] = self.state[param]
            if h.low_precision_weights == "master" and state_dtype(tensor.dtype) != tensor.dtype:
                self.state[param]["master"] = torch.empty(
                    tensor.shape, dtype=state_dtype(tensor.dtype), device=tensor.device
                )

    def _fill_masters(self, wanted: Collection[Tensor | None]) -> None:
        with torch.no_grad(), self._stand_ins.rounds() as rounds:
            for number in rounds:
                for tensor in (tensor for share in self._shares.get(number, ()) for tensor in share.tensors):
                    if tensor in wanted and "master" in self._state_of[tensor]:
                        self._state_of[tensor]["master"].copy_(tensor)

    def diagnostics(self) -> Diagnostics:
        """Condition numbers, update-to-weight and grafting ratios, residuals and failures, as of now.

        With DTensor parameters it is collective, and the same on all ranks.
        Computed from the state and the gradients that the parameters hold, at the price of about two steps without
        statistics; changes nothing.
        """
        checked = [Hyperparameters.of_group(group) for group in self.param_groups]
        measured: dict[Tensor, Measured] = {}
        with self._stand_ins.rounds() as rounds:
            for number in rounds:
                norms = self._stand_ins.norms(number)
                for share in self._shares.get(number, ()):
                    measured |= measure(share.tensors, checked[share.group], share.buckets, self._state_of, norms)
        return summarise([merged(parts) for parts in self._stand_ins.of_all_ranks(measured)])

    def state_dict(self) -> dict[str, Any]:
        """State and hyperparameters as plain values and tensors of their own memory: a snapshot.

        Loads with `torch.load(..., weights_only=True)`. Copies, because a view would pickle its whole bucket. Of
        parameters that ranks share it holds what this rank owns: some blocks of a parameter under a key like "part 1 of
        4", and with distributed="local" every state under one like "shard 1 of 4". The state of all ranks together fits
        any number of them; see `distributed_state_dict`.
        """
        packed = super().state_dict()
        params = [param for group in self.param_groups for param in group["params"]]
        state: dict[int, dict[str, Any]] = {}
        for key, held in packed["state"].items():
            if held:
                name = self._stand_ins.part_name(params[key])
                own = own_memory({**held, **self._stand_ins.blocks(params[key])})
                state[key] = own if name is None else {name: own}
        return {**packed, "state": state, "param_groups": [dict(group) for group in packed["param_groups"]]}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over state and hyperparameters of a `state_dict()`; resumed training is bit-identical.

        Everything is checked before anything is written. torch's own version is replaced because it casts the state
        to the parameters' dtype.

        Raises:
            ValueError: groups, names, shapes or dtypes do not fit these parameters, or hyperparameters that shape the
                state differ, or one is illegal or unknown.
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
        for saved, structure in zip(saved_groups, self._structures, strict=True):
            require_known_keys(saved)
            h = Hyperparameters.of_group({**{name: DEFAULTS[name] for name in SHARING}, **saved})
            h.require_structure({name: value for name, value in structure.items() if name not in SHARING})
        self._thaw_for(state_dict["state"], saved_groups)
        pairs: list[tuple[Mapping[str, Any], dict[str, Any]]] = []
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            for param, key in zip(group["params"], saved["params"], strict=True):
                target = self.state[param]
                if not target:
                    continue
                if key not in state_dict["state"]:
                    if not is_trained(param):
                        continue
                    raise ValueError(
                        f"checkpoint lacks the state of parameter {key}; if it was frozen there, load before it "
                        "requires a gradient"
                    )
                source = state_dict["state"][key]
                name = self._stand_ins.part_name(param)
                if name is not None:
                    if name not in source:
                        raise ValueError(f"checkpoint lacks {name} of parameter {key}, it holds {sorted(source)}")
                    source = take_blocks(source[name], self._stand_ins.blocks(param), parameter=key)
                require_same_layout(source, target, parameter=key)
                pairs.append((source, target))
        for source, target in pairs:
            copy_state(source, target)
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            # Which ranks step a parameter is no part of the state.
            group.update({name: value for name, value in saved.items() if name not in ("params", *SHARING)})
            group["betas"] = tuple(group["betas"])
        self._look_at_refreshes()
        for post_hook in self._optimizer_load_state_dict_post_hooks.values():
            post_hook(self)

    def _thaw_for(self, saved: Mapping[int, object], saved_groups: Sequence[Mapping[str, Any]]) -> None:
        """Makes the state of parameters that have one in a checkpoint, though they are frozen now."""
        keys = {
            param: key
            for group, of_group in zip(self.param_groups, saved_groups, strict=True)
            for param, key in zip(group["params"], of_group["params"], strict=True)
        }
        also = [param for param in self._frozen if keys[param] in saved and not is_trained(param)]
        for param in also:
            # Of a parameter that is shared, only some ranks would find a state in theirs.
            if is_shared(param, Hyperparameters.of_group(self.param_groups[self._frozen[param]])):
                raise ValueError(
                    f"checkpoint has a state of parameter {keys[param]}, which is frozen: let it require a gradient on "
                    "all ranks, and load then"
                )
        self._thaw(also)

    def distributed_state_dict(self) -> dict[str, Any]:
        """`state_dict()` for `torch.distributed.checkpoint`, to save and to load into; the same with plain parameters.

            dcp.save({"optimizer": optimizer.distributed_state_dict()}, checkpoint_id=path)
            ...
            state = {"optimizer": optimizer.distributed_state_dict()}
            dcp.load(state, checkpoint_id=path)
            optimizer.load_distributed_state_dict(state["optimizer"])

        `["state"][index of the parameter, a string][name]` is a tensor that one rank has, or that all have alike, or a
        `BlockRows` of one that several ranks have together. So ranks of another number, and a single process, find what
        they own. With distributed="local" there is one more level, "shard 1 of 4", which only as many ranks can load.
        """
        return to_portable(self.state_dict(), self._rows())

    def load_distributed_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `distributed_state_dict()`.

        Raises:
            ValueError: as `load_state_dict`.
        """
        self.load_state_dict(from_portable(state_dict, self.state_dict()))

    def _rows(self) -> dict[int, dict[str, Rows]]:
        """By index of a parameter and name in its state, which rows this rank has of what it shares with others."""
        pieces: dict[Tensor, list[Piece]] = {}
        for bucket in self._all_buckets():
            for piece in bucket.pieces:
                pieces.setdefault(piece.param, []).append(piece)
        found: dict[int, dict[str, Rows]] = {}
        for index, param in enumerate(param for group in self.param_groups for param in group["params"]):
            tensor = self._stand_ins.of(param)
            by_number = {} if tensor is None else self._stand_ins.rows(param, pieces.get(tensor, ()))
            if by_number:
                found[index] = {
                    name: by_number[int(name.rpartition(".")[2])] for name in self.state[param] if "." in name
                }
        return found

    def _all_buckets(self) -> Iterator[Bucket]:
        for shares in self._shares.values():
            for share in shares:
                yield from share.buckets

    def _look_at_refreshes(self) -> None:
        for bucket in self._all_buckets():
            bucket.look_at_refreshes()

    def __getstate__(self) -> dict[str, Any]:
        state = {param: own_memory(state) for param, state in self.state.items()}
        return {
            **super().__getstate__(),
            "state": state,
            "sharing": (self._stand_ins.owners, self._stand_ins.group_size),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved, sharing = state["state"], state.get("sharing", (None, None))
        self._reset()
        super().__setstate__({**{name: x for name, x in state.items() if name != "sharing"}, "state": {}})
        owners = sharing[0] or {}
        members: list[tuple[list[Tensor], Hyperparameters]] = []
        for number, group in enumerate(self.param_groups):
            self._register(group)
            params = [param for param in group["params"] if saved[param] or param in owners]
            members.append((params, Hyperparameters.of_group(group)))
            self._frozen |= {param: number for param in group["params"] if not saved[param] and param not in owners}
        self._stand_ins.adopt(self._stand_ins.plan(members, *sharing))
        for number, (params, h) in enumerate(members):
            self._allocate_members(number, params, h)
            for param in params:
                copy_state(saved[param], self.state[param])
        self._is_allocated = True
        self._look_at_refreshes()


@dataclass(frozen=True, slots=True)
class Share:
    """What this rank steps of a group in one round."""

    group: int
    tensors: Sequence[Tensor]
    buckets: Sequence[Bucket]
