"""`Shampoo`: the optimizer as torch knows it, with parameter groups, a step, diagnostics and checkpoints.

The arithmetic is in `step/`, from the step of a group down to that of stacked blocks (`block_step`, which states the
recurrences), and in `linalg/`. `allocation` makes the state, `state/` says what it holds and where it lies, and
`distributed/` which rank steps what.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Never, TypeVar, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from shampoo import hyperparameters, torch_internals
from shampoo.allocation import Allocation, GroupMembers, share_of_state, warn_of_sharing_nothing
from shampoo.argument_docs import ARGUMENTS
from shampoo.checked_hyperparameters import CheckedHyperparameters
from shampoo.diagnostics import Diagnostics, ParameterHealth, measure, merged, summarise
from shampoo.distributed.agreement import SHARING, fixed_structure
from shampoo.distributed.placement import Placements, Settled
from shampoo.distributed.portable_state import from_portable, to_portable
from shampoo.distributed.topology import world_rank
from shampoo.gradients import Gradients, require_gradients
from shampoo.group_rules import (
    completed,
    decay_per_step,
    in_order,
    inherited,
    is_trained,
    refuse_arguments,
    require_known_keys,
    require_no_steps,
    require_own_memory,
    require_params,
    saved_groups,
)
from shampoo.hyperparameters import NAMES, Hyperparameters
from shampoo.memory import require_memory
from shampoo.state.held_states import forget_parameters
from shampoo.state.transfer import own_memory
from shampoo.step.failures import RefreshFailures
from shampoo.step.group_step import GroupStep

Loss = TypeVar("Loss")
"""The result of a closure, as a rule a float or a tensor: `step` passes it on."""


class Shampoo(Optimizer):
    """The Shampoo family: Kronecker-factored Shampoo with grafting, SOAP, KL-Shampoo, spectral descent, and plain
    AdamW and SGD beside them, for tensors of any order.

    Every argument after `params` is a hyperparameter of a parameter group and may be overridden there. All are plain
    numbers, strings and pairs, so `Shampoo(model.parameters(), **json.loads(text))` works; `lr` may also be a tensor of
    one number on the CPU, read at every step. `help(Shampoo.__init__)` says what each means; the update is in
    `block_step`. Each is live: a value changed in `param_groups` counts from the next step, and one that shapes the
    state raises an error when it is changed. A group that overrides `preconditioner` does not inherit hyperparameters
    that its member does not use.

    DTensor parameters (FSDP2, HSDP, SimpleFSDP), and with distributed="lossless" plain ones under DDP, are spread over
    ranks with their state: see `shampoo.distributed`. `share_of_state` says how much of it this rank has. A warning
    tells when ranks share nothing, because one block is most of the work.

    State is allocated here, so the model must be on its device already. It is at least float32, except for Kronecker
    factors if `state_dtype` says so. A parameter without a gradient is left alone, and has its own step count. A
    parameter whose gradient's norm is not finite does not move, and is counted in `state[param]["num_skipped"]`. On the
    CPU its state does not move either; elsewhere, where the host does not know, its averages take the gradient as zero.
    A refresh that fails keeps the previous root and is counted in `num_failed`; `diagnostics` sums it up.

    A parameter that is frozen (`requires_grad=False`) when it is added has no state. Its state is allocated at the
    first step at which it requires a gradient, or has one all the same; ranks that share parameters must unfreeze them
    at the same step. A parameter that is frozen later keeps its state.

    Raises:
        TypeError: parameters are a set, which has no order.
        ValueError: an argument is illegal or would have no effect; the message holds the values.
        MemoryError: the state does not fit into what is left of the device's memory; the message says why.
    """

    _allocation: Allocation
    _step_uncompiled: ClassVar[Any] = None
    """The step, excluded from compilation when a whole training step is compiled: each step decides anew what it
    refreshes, and ranks communicate in it."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
        lr: float | Tensor = 1.5e-3,
        *,
        betas: Sequence[float] = (0.9, 0.999),
        beta3: float | None = None,
        shampoo_beta: float | None = None,
        epsilon: float = 1e-06,
        epsilon_type: hyperparameters.EpsilonType = "relative",
        weight_decay: float = 0.0,
        weight_decay_type: hyperparameters.WeightDecayType = "decoupled",
        momentum: float = 0.0,
        nesterov: bool = False,
        preconditioner: hyperparameters.Preconditioner = "shampoo",
        solver: hyperparameters.Solver | None = None,
        max_preconditioner_dim: int = 1024,
        large_dim_method: hyperparameters.LargeDimMethod = "blocking",
        one_sided: bool = False,
        precondition_frequency: int | None = None,
        start_preconditioning_step: int | None = None,
        statistics_frequency: int | None = None,
        stagger_refresh: bool = True,
        refresh_tolerance: float = 0.0,
        grafting: hyperparameters.Grafting | None = None,
        grafting_beta2: float | None = None,
        grafting_epsilon: float = 1e-08,
        exponent_override: float | None = None,
        pseudo_inverse: bool = False,
        use_bias_correction: bool = True,
        adjust_lr_fn: hyperparameters.AdjustLr = "match_rms_adamw",
        standardize_rows: bool = False,
        matrix_norm: hyperparameters.MatrixNorm = "spectral",
        rank: int | None = None,
        rest_scale: float = 0.1,
        state_dtype: hyperparameters.StateDtype = "float32",
        product_dtype: hyperparameters.ProductDtype = "float32",
        low_precision_weights: hyperparameters.LowPrecisionWeights = "nearest",
        max_failed_refreshes: int = 3,
        distributed: hyperparameters.Distributed = "auto",
        communication_dtype: hyperparameters.CommunicationDtype = "float32",
        num_ranks_per_group: int | None = None,
        reduce_gradients: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_arguments(unknown)
        arguments = locals()
        defaults = {name: arguments[name] for name in NAMES}
        defaults["betas"] = Hyperparameters.of_group(defaults).betas
        self._prepare()
        super().__init__(params if isinstance(params, Tensor) else in_order(params), defaults)
        self._allocate()

    __init__.__doc__ = ARGUMENTS

    @property
    def share_of_state(self) -> float:
        """Bytes of state on this rank, as a share of those in a single process: 1 if nothing is shared."""
        return share_of_state(self._all_members(), self.state)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, `params` and the hyperparameters that differ, and allocates its state.

        Ranks that share parameters add the same groups. With plain parameters, or with master copies, the call is
        collective.

        Raises:
            TypeError: the parameters are a set, which has no order.
            ValueError: a hyperparameter is illegal or unknown, or a parameter is not a real floating-point tensor, or
                shares memory with another, or ranks that share parameters add others.
            MemoryError: the state does not fit into what is left of the device's memory.
        """
        # Everything is checked on a copy: a group that is refused leaves nothing behind.
        require_known_keys(param_group)
        values = inherited(self.defaults, param_group.get("preconditioner", self.defaults["preconditioner"]))
        h = Hyperparameters.of_group({**values, **param_group})
        params = in_order(param_group["params"])
        tensors = [named[1] if isinstance(named, tuple) else named for named in params]
        require_params(tensors, h)
        placements: Placements | None = None
        if self._is_allocated:
            require_own_memory([*self.param_groups, {"params": tensors}])
            trained = [param for param in tensors if is_trained(param)]
            placements = self._allocation.plan.propose([(trained, h)])
            require_memory(list(placements.costs(trained, h)), h, working_bytes=placements.working_bytes())
        super().add_param_group({**values, **param_group, "params": params})
        group = self.param_groups[-1]
        group.update({name: getattr(h, name) for name in NAMES if not isinstance(group[name], Tensor)})
        group.setdefault("peak_lr", h.lr)
        if placements is not None:
            self._allocation.add([self._take_in(len(self.param_groups) - 1, is_trained)], self.state, placements)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], Loss]) -> Loss: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], Loss] | None = None) -> Loss | None:
        """Takes one step; with a closure, evaluates it first and gives its value.

        With distributed="lossless", and with DTensor parameters unless it is "local", it is collective: all ranks call
        it, whether or not they have gradients, and see the same outcome.

        Raises:
            ValueError: a hyperparameter was changed to an illegal value, or one that shapes the state was changed, or a
                group holds an unknown key that resembles a hyperparameter, or a state was replaced by one that does not
                fit. Nothing has moved then.
            RuntimeError: a gradient is sparse, too precise or placed differently from its parameter, or a parameter was
                replaced, or has another shape, dtype or device than when its state was made: nothing has moved then. Or
                another rank did not take part: then the weights are lost.
            RefreshFailed: a factor's refresh failed more than `max_failed_refreshes` times in a row, on whichever rank;
                a RuntimeError.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_uncompiled(self)
        return loss

    @torch.inference_mode(False)  # scratch memory and state outlast that mode, which would forbid to write to them
    @torch.no_grad()
    def _step_everything(self) -> None:
        self._follow_parameters()
        # All groups are checked before the first one moves.
        with_structures = zip(self.param_groups, self._structures, strict=True)
        checked = [self._checked.fitting(number, *one) for number, one in enumerate(with_structures)]
        self._gradients.require(self.param_groups)
        allocation, plan = self._allocation, self._allocation.plan
        state, positions = allocation.state_of, allocation.positions
        allocation.require_as_made()
        allocation.thaw(self.param_groups, checked.__getitem__, self.state)
        plan.require_gradients()
        shared_on = plan.rounds.shared_on
        report = None if shared_on is None else functools.partial(self._failures.excess, shared_on)
        with plan.rounds.walk(report) as rounds:
            for number in rounds:
                norms = plan.rounds.norms(number)
                for share in allocation.shares(number):
                    h, group = checked[share.group], self.param_groups[share.group]
                    kept = 1 - decay_per_step(h, group["peak_lr"])
                    self._step_group(
                        share.tensors, share.buckets, h, kept=kept, state=state, positions=positions, norms=norms
                    )
        if plan.rounds.largest_report is not None:
            self._failures.raise_together(plan.rounds.largest_report)
        else:
            self._failures.raise_if_too_many()

    def _prepare(self) -> None:
        """Makes what adding a group needs."""
        if Shampoo._step_uncompiled is None:
            # Not as a decorator: importing the compiler takes as long as importing torch.
            disabled = torch.compiler.disable(Shampoo._step_everything)  # type: ignore[no-untyped-call, unused-ignore]
            Shampoo._step_uncompiled = staticmethod(disabled)
        self._is_allocated = False
        self._allocation = Allocation()
        self._structures: list[dict[str, object]] = []
        self._checked, self._gradients = CheckedHyperparameters(), Gradients()
        self._failures = RefreshFailures()
        self._step_group = GroupStep(self._failures)

    def _allocate(self) -> None:
        require_own_memory(self.param_groups)
        # All groups at once, so that the ranks share them evenly.
        members = [self._take_in(number, is_trained) for number in range(len(self.param_groups))]
        self._allocation.add(members, self.state)
        self._is_allocated = True
        if self._allocation.plan.settled.group_size == 1 and world_rank() == 0:
            warn_of_sharing_nothing(self._all_members())

    def _follow_parameters(self) -> None:
        """Makes a new state if it was cleared, or if groups have other parameters before the first step (Accelerate).
        Copies the values of states that others have put there (Lightning)."""
        if self._allocation.is_of(self.param_groups, self.state):
            self._allocation.take_back(self.state)
            return
        require_no_steps(self.state.values())
        forget_parameters(self.state)
        self._prepare()
        for number, group in enumerate(self.param_groups):
            require_params(group["params"], self._hyperparameters(number))
        self._allocate()

    def _take_in(self, number: int, has_state: Callable[[Tensor], bool]) -> GroupMembers:
        """Registers a group, and gives those of its parameters that have a state from the beginning."""
        group, h = self.param_groups[number], self._hyperparameters(number)
        self._structures.append(fixed_structure(h))
        self._allocation.register(group["params"], self.state)
        self._allocation.frozen |= {param: number for param in group["params"] if not has_state(param)}
        return self._members(number)

    def _members(self, number: int) -> GroupMembers:
        """The parameters of a group that are not frozen."""
        params = self.param_groups[number]["params"]
        trained = [param for param in params if param not in self._allocation.frozen]
        return GroupMembers(number, trained, self._hyperparameters(number))

    def _all_members(self) -> list[GroupMembers]:
        return [self._members(number) for number in range(len(self.param_groups))]

    def _hyperparameters(self, number: int) -> Hyperparameters:
        return self._checked.of(number, self.param_groups[number])

    def diagnostics(self) -> Diagnostics:
        """Condition numbers, update-to-weight and grafting ratios, residuals and failures, as of now.

        With distributed="lossless", and with DTensor parameters, it is collective, and the same on all ranks: a rank
        that calls it alone, perhaps to print it, waits forever. Computed from the state and the gradients that the
        parameters hold, at the price of about two steps without statistics; changes nothing.
        """
        self._follow_parameters()
        require_gradients(self.param_groups)
        checked = [self._hyperparameters(number) for number in range(len(self.param_groups))]
        measured: dict[Tensor, ParameterHealth] = {}
        allocation, plan = self._allocation, self._allocation.plan
        with plan.rounds.walk() as rounds:
            for number in rounds:
                norms = plan.rounds.norms(number)
                for share in allocation.shares(number):
                    measured |= measure(share.tensors, checked[share.group], share.buckets, allocation.state_of, norms)
        return summarise([merged(parts) for parts in plan.of_all_ranks(measured)])

    def state_dict(self) -> dict[str, Any]:
        """State and hyperparameters as plain values and tensors of their own memory: a snapshot.

        Loads with `torch.load(..., weights_only=True)`. The tensors are copies, because a view would pickle its whole
        bucket. Of shared parameters it holds what this rank owns, which may be nothing: some blocks of a parameter
        under a key like "part 1 of 4", and with distributed="local" every state under a key like "shard 1 of 4". The
        state of all ranks together fits any number of them; see `distributed_state_dict`. Keys of `state` that are not
        parameters are kept.

        Raises:
            ValueError: such a key is the position of a parameter, under which the state of that one is saved.
        """
        torch_internals.before_saving(self)
        self._follow_parameters()
        return torch_internals.after_saving(self, self._allocation.snapshot(self.param_groups, self.state))

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over state and hyperparameters of a `state_dict()`; resumed training is bit-identical.

        Everything is checked before anything is written. A hyperparameter that is newer than the checkpoint takes its
        default. torch's own version is replaced because it casts the state to the parameters' dtype.

        Raises:
            ValueError: it is another optimizer's; or groups, names, shapes or dtypes do not fit these parameters, or
                hyperparameters that shape the state differ, or one is illegal or unknown.
        """
        self._follow_parameters()
        state_dict = torch_internals.before_loading(self, state_dict)
        of_groups = saved_groups(state_dict, self.param_groups, self._structures)
        keys = {
            param: key
            for group, saved in zip(self.param_groups, of_groups, strict=True)
            for param, key in zip(group["params"], saved["params"], strict=True)
        }
        self._allocation.load(keys, state_dict["state"], self.param_groups, self._hyperparameters, self.state)
        for group, saved in zip(self.param_groups, of_groups, strict=True):
            # Which ranks step a parameter is not part of the state.
            group.update({name: value for name, value in saved.items() if name not in ("params", *SHARING)})
            group["betas"] = tuple(group["betas"])
        torch_internals.after_loading(self)

    def distributed_state_dict(self) -> dict[str, Any]:
        """`state_dict()` for `torch.distributed.checkpoint`, to save and to load into; the same with plain parameters.

            dcp.save({"optimizer": optimizer.distributed_state_dict()}, checkpoint_id=path)
            ...
            state = {"optimizer": optimizer.distributed_state_dict()}
            dcp.load(state, checkpoint_id=path)
            optimizer.load_distributed_state_dict(state["optimizer"])

        `["state"][index of the parameter, a string][name]` is a tensor that one rank has, or that is the same on all
        ranks, or a `BlockRows` of a tensor that several ranks hold together. So another number of ranks, or a single
        process, finds what it owns. With distributed="local" there is one more level, "shard 1 of 4", which only the
        same number of ranks can load.
        """
        return to_portable(self.state_dict(), self._allocation.rows(self.state))

    def load_distributed_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `distributed_state_dict()`.

        Raises:
            ValueError: as `load_state_dict`.
        """
        self._follow_parameters()
        like = self._allocation.snapshot(self.param_groups, self.state)
        self.load_state_dict(from_portable(state_dict, like))

    def __getstate__(self) -> dict[str, Any]:
        self._follow_parameters()
        state = {key: own_memory(held) if isinstance(key, Tensor) else held for key, held in self.state.items()}
        settled = self._allocation.plan.settled
        return {**super().__getstate__(), "state": state, "sharing": (settled.owners, settled.group_size)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        saved, sharing = state["state"], state.get("sharing")
        self._prepare()
        super().__setstate__({**{name: x for name, x in state.items() if name != "sharing"}, "state": {}})
        self.defaults = {name: x for name, x in self.defaults.items() if name in NAMES}  # torch has put its own there
        for group in self.param_groups:
            group.update(completed(group))
        settled = None if sharing is None else Settled(*sharing)
        members = [
            self._take_in(number, lambda param: bool(saved[param]) or (sharing is not None and param in sharing[0]))
            for number in range(len(self.param_groups))
        ]
        self._allocation.restore(members, self.state, settled, saved)
        self._is_allocated = True
