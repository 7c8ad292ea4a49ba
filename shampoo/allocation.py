"""The state of an optimizer's parameters, allocated for the parts that this rank steps.

A parameter appears in three forms: the user's tensor, the tensor that is stepped in its place (itself, or a placeholder
of the sharding plan), and the rows of buckets that hold the state of that tensor.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from shampoo.distributed.block_rows import RowRuns
from shampoo.distributed.ownership import cost_of_runs
from shampoo.distributed.placement import Placements, Settled, is_shared, reason_for_sharing_nothing
from shampoo.distributed.sharding_plan import ShardingPlan
from shampoo.distributed.topology import world_size
from shampoo.group_rules import is_trained, require_own_memory, require_params, saved_values
from shampoo.hyperparameters import Hyperparameters
from shampoo.memory import require_memory
from shampoo.state.buckets import Bucket, BucketPiece, line_up, make_buckets, state_by_param, state_dtype
from shampoo.state.held_states import HeldStates, States, beside_parameters, replace_beside, require_no_positions
from shampoo.state.transfer import copy_state, own_memory, require_same_layout, take_blocks

_FOR_ANY_RANKS = "; that of distributed_state_dict(), saved on all ranks, is for any ranks"


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """Parameters of one group: all of them, or some."""

    group: int
    """Its number."""
    params: Sequence[Tensor]
    h: Hyperparameters


@dataclass(frozen=True, slots=True)
class RankShare:
    """The part of a group that this rank steps in one round."""

    group: int
    tensors: Sequence[Tensor]
    buckets: Sequence[Bucket]


class Allocation:
    """The parameters with a state, and those that are frozen and have none yet."""

    def __init__(self) -> None:
        self.plan = ShardingPlan()
        self.frozen: dict[Tensor, int] = {}
        """Parameters without a state, with the numbers of their groups."""
        self.state_of: dict[Tensor, dict[str, Any]] = {}
        """By tensor that is stepped."""
        self.positions: dict[Tensor, int] = {}
        """By tensor that is stepped, the position of its parameter among all of the optimizer's."""
        self._positions_of_all: dict[Tensor, int] = {}
        self._group_sizes: list[int] = []
        self._made_for: dict[Tensor, tuple[torch.Size, torch.dtype, torch.device]] = {}
        """The shapes, dtypes and devices of parameters when their state was made."""
        self._shares: dict[int, list[RankShare]] = {}
        self._held = HeldStates()

    def shares(self, number: int) -> Sequence[RankShare]:
        """Everything that this rank steps in the round of this number."""
        return self._shares.get(number, ())

    def buckets(self) -> Iterator[Bucket]:
        """The buckets of all rounds."""
        for shares in self._shares.values():
            for share in shares:
                yield from share.buckets

    def register(self, params: Sequence[Tensor], state: States) -> None:
        """Registers the parameters of a group, in the order of the optimizer."""
        self._group_sizes.append(len(params))
        for param in params:
            self._positions_of_all[param] = len(self._positions_of_all)
            # An entry on every rank: torch's checkpoints step an optimizer whose state is empty.
            state[param] = {}
            self._held.hold(param, state[param])

    def is_of(self, groups: Sequence[Mapping[str, Any]], state: States) -> bool:
        """True if each group holds its registered parameters, and `state` has an entry for every one."""
        params = [param for group in groups for param in group["params"]]
        # Called in each step: comparing identical objects is faster than hashing tensors.
        return (
            [len(group["params"]) for group in groups] == self._group_sizes
            and all(map(operator.is_, params, self._positions_of_all))
            and len(state) >= len(params)
        )

    def take_back(self, state: States) -> None:
        """If states, tensors or memory that were made here have been replaced, copies the new values and puts the
        originals back.

        Raises:
            ValueError: one does not have the names, shapes and dtypes that the state was made with.
        """
        copies = self._held.take_back(state, self._positions_of_all)
        if copies:
            self._copy(copies)

    def require_as_made(self) -> None:
        """Checks that parameters still fit the state that was made for them.

        Raises:
            RuntimeError: one has been converted, moved or given another shape since.
        """
        for param, (shape, dtype, device) in self._made_for.items():
            if param.shape != shape:
                raise RuntimeError(
                    f"a parameter has the shape {tuple(param.shape)} now, and had {tuple(shape)} when the optimizer "
                    "made its state: change the model first, and build the optimizer then"
                )
            if param.dtype != dtype or param.device != device:
                raise RuntimeError(
                    f"a parameter of shape {tuple(param.shape)} is {param.dtype} on {param.device} now, and was "
                    f"{dtype} on {device} when the optimizer made its state: convert and move the model first, and "
                    "build the optimizer then"
                )

    def add(self, members: Sequence[GroupMembers], state: States, placements: Placements | None = None) -> None:
        """Makes the state of registered parameters.

        Args:
            placements: those of the parameters, if they have been checked against the free memory.

        Raises:
            MemoryError: the state does not fit into the free memory.
        """
        found = self.plan.propose([(one.params, one.h) for one in members]) if placements is None else placements
        self.plan.adopt(found)
        for one in members:
            if placements is None:
                require_memory(list(found.costs(one.params, one.h)), one.h, working_bytes=found.working_bytes())
            self._add_group(one, state)
        if any(one.h.low_precision_weights == "master" for one in members):
            self._fill_masters({self.plan.of(param) for one in members for param in one.params})

    def restore(
        self, members: Sequence[GroupMembers], state: States, settled: Settled | None, saved: Mapping[Tensor, Any]
    ) -> None:
        """Makes the state of registered parameters, with owners that were chosen before, as it was saved."""
        self.plan.adopt(self.plan.propose([(one.params, one.h) for one in members], settled))
        for one in members:
            self._add_group(one, state)
        self._copy([(saved[param], state[param]) for one in members for param in one.params])
        replace_beside(state, beside_parameters(saved))

    def thaw(
        self,
        groups: Sequence[Mapping[str, Any]],
        h_of: Callable[[int], Hyperparameters],
        state: States,
        also: Set[Tensor] = frozenset(),
    ) -> None:
        """Makes the state of parameters that were frozen without a state and are now trained; the same on all ranks.

        The refreshes of their groups are spread again.

        Args:
            groups: all that the optimizer has.
            h_of: the hyperparameters of the group of a number.
            also: frozen parameters that get a state all the same.

        Raises:
            ValueError: they can't be stepped with these hyperparameters, or share memory with others that are trained.
            MemoryError: the state does not fit into the device's free memory.
        """
        found = [(number, param) for param, number in self.frozen.items() if is_trained(param) or param in also]
        if not found:
            return
        members = [
            GroupMembers(number, [param for of_group, param in found if of_group == number], h_of(number))
            for number in dict.fromkeys(number for number, _ in found)
        ]
        require_own_memory(groups)
        placements = self.plan.propose([(one.params, one.h) for one in members])
        for one in members:
            # Checked for the whole group: a value without effect on these may have one on others, and messages need the
            # positions.
            require_params(groups[one.group]["params"], one.h)
            require_memory(list(placements.costs(one.params, one.h)), one.h, working_bytes=placements.working_bytes())
        self.add(members, state, placements)
        for _, param in found:
            del self.frozen[param]
        for one in members:
            self._line_up([param for param in groups[one.group]["params"] if param not in self.frozen], one)

    def snapshot(self, groups: Sequence[Mapping[str, Any]], state: States) -> dict[str, Any]:
        """The contents of a `state_dict()`: the groups, a copy of the state of parameters that are not frozen, and
        other entries unchanged. It has the positions of parameters instead of the parameters.

        Raises:
            ValueError: another entry is kept under the position of a parameter, so one of the two would be lost.
        """
        found: dict[Any, dict[str, Any]] = beside_parameters(state)
        require_no_positions(found, num_params=len(self._positions_of_all))
        for param, position in self._positions_of_all.items():
            # Parameters of other owners also have an (empty) entry, without which torch's `set_state_dict` refuses the
            # state.
            if param not in self.frozen:
                of_param = state[param]
                name = self.plan.part_name(param) if of_param else None
                own = own_memory({**of_param, **self.plan.blocks(param)}) if of_param else {}
                found[position] = own if name is None else {name: own}
        positions = ([self._positions_of_all[param] for param in group["params"]] for group in groups)
        saved = [{**saved_values(group), "params": of_group} for group, of_group in zip(groups, positions, strict=True)]
        return {"state": found, "param_groups": saved}

    def load(
        self,
        keys: Mapping[Tensor, Any],
        saved: Mapping[Any, Mapping[str, Any]],
        groups: Sequence[Mapping[str, Any]],
        h_of: Callable[[int], Hyperparameters],
        state: States,
    ) -> None:
        """Loads the states of a checkpoint, by the keys of parameters, and its other entries; all are checked before
        one is written.

        Raises:
            ValueError: as `_thaw_saved` and `_pairs_to_copy`.
        """
        self._pairs_to_copy(keys, saved, state)  # before a frozen parameter gets a state
        self._thaw_saved({param: key for param, key in keys.items() if saved.get(key)}, groups, h_of, state)
        self._copy(self._pairs_to_copy(keys, saved, state))
        replace_beside(state, {key: held for key, held in saved.items() if key not in {*keys.values()}})

    def _thaw_saved(
        self,
        saved_as: Mapping[Tensor, object],
        groups: Sequence[Mapping[str, Any]],
        h_of: Callable[[int], Hyperparameters],
        state: States,
    ) -> None:
        """Makes the state of frozen parameters that have one in a checkpoint.

        Args:
            saved_as: the keys of parameters there.

        Raises:
            ValueError: one is frozen here, and shared: only some ranks would find a state for it in their checkpoint.
        """
        also = {param for param in self.frozen if param in saved_as and not is_trained(param)}
        for param in also:
            if is_shared(param, h_of(self.frozen[param])):
                raise ValueError(
                    f"checkpoint has a state of parameter {saved_as[param]}, which is frozen: let it require a "
                    "gradient on all ranks, and load then"
                )
        self.thaw(groups, h_of, state, also)

    def rows(self, state: States) -> dict[int, dict[str, RowRuns]]:
        """The rows that this rank has of shared tensors, by position of the parameter and name of the tensor in its
        state."""
        pieces: dict[Tensor, list[BucketPiece]] = {}
        for bucket in self.buckets():
            for piece in bucket.pieces:
                pieces.setdefault(piece.param, []).append(piece)
        found: dict[int, dict[str, RowRuns]] = {}
        for param, position in self._positions_of_all.items():
            tensor = self.plan.of(param)
            by_number = {} if tensor is None else self.plan.rows(param, pieces.get(tensor, ()))
            if by_number:
                found[position] = {
                    name: by_number[int(name.rpartition(".")[2])] for name in state[param] if "." in name
                }
        return found

    def _pairs_to_copy(
        self, keys: Mapping[Tensor, Any], saved: Mapping[Any, Mapping[str, Any]], state: States
    ) -> list[tuple[Mapping[str, Any], dict[str, Any]]]:
        """The state in a checkpoint and the state here, for each parameter that has a state on this rank.

        Args:
            keys: the keys of all parameters in the checkpoint.
            saved: the state there, by those keys.

        Raises:
            ValueError: the checkpoint lacks a state, or has one of another layout.
        """
        pairs: list[tuple[Mapping[str, Any], dict[str, Any]]] = []
        for param, key in keys.items():
            target = state[param]
            if not target:
                continue
            source = saved.get(key)
            if not source:
                if not is_trained(param):
                    continue
                if key in saved:
                    raise ValueError(
                        f"checkpoint lacks the state of parameter {key}: it is the state_dict() of one rank, which "
                        f"holds what that rank owns, and others own this{_FOR_ANY_RANKS}"
                    )
                raise ValueError(
                    f"checkpoint lacks the state of parameter {key}; if it was frozen there, load before it "
                    "requires a gradient"
                )
            name = self.plan.part_name(param)
            parts = sorted(part for part, held in source.items() if isinstance(held, Mapping))
            if (name is None and parts) or (name is not None and name not in source):
                is_of_shards = any(part.startswith("shard") for part in (name or "", *parts))
                advice = "" if is_of_shards else _FOR_ANY_RANKS
                raise ValueError(
                    f"checkpoint lacks {name or 'all'} of parameter {key}, it holds {parts or 'all'}{advice}"
                )
            if name is not None:
                source = take_blocks(source[name], self.plan.blocks(param), parameter=key)
            require_same_layout(source, target, parameter=key)
            pairs.append((source, target))
        return pairs

    def _copy(self, pairs: Iterable[tuple[Mapping[str, Any], dict[str, Any]]]) -> None:
        for source, target in pairs:
            copy_state(source, target)
        for bucket in self.buckets():
            bucket.look_at_refreshes()

    @torch.inference_mode(False)  # tensors made in that mode can never be written to outside of it
    def _add_group(self, members: GroupMembers, state: States) -> None:
        for number, stepped in self.plan.by_round(members.params).items():
            buckets = make_buckets(stepped, members.h)
            tensors = [one.tensor for one in stepped if one.tensor is not None]
            self._shares.setdefault(number, []).append(RankShare(members.group, tensors, buckets))
            self.state_of.update(state_by_param(buckets))
        for param in members.params:
            self._made_for[param] = param.shape, param.dtype, param.device
            tensor = self.plan.of(param)
            if tensor is None:
                continue
            self.positions[tensor] = self._positions_of_all[param]
            num_skipped = torch.zeros((), dtype=torch.int64, device=tensor.device)
            state[param].update({"step": 0, "num_skipped": num_skipped, **self.state_of.get(tensor, {})})
            self.state_of[tensor] = state[param]
            if members.h.low_precision_weights == "master" and state_dtype(tensor.dtype) != tensor.dtype:
                state[param]["master"] = torch.empty(
                    tensor.shape, dtype=state_dtype(tensor.dtype), device=tensor.device
                )
            self._held.hold(param, state[param])

    def _line_up(self, params: Sequence[Tensor], members: GroupMembers) -> None:
        """Spreads the refreshes of a group, which has a state of these parameters, as if all states had been made
        together, as they are when a checkpoint is loaded."""
        for number, stepped in self.plan.by_round(params).items():
            buckets = [x for share in self.shares(number) if share.group == members.group for x in share.buckets]
            line_up(buckets, stepped, members.h)

    def _fill_masters(self, wanted: Collection[Tensor | None]) -> None:
        with torch.no_grad(), self.plan.rounds.walk() as rounds:
            for number in rounds:
                for tensor in (tensor for share in self.shares(number) for tensor in share.tensors):
                    if tensor in wanted and "master" in self.state_of[tensor]:
                        self.state_of[tensor]["master"].copy_(tensor)


def share_of_state(groups: Sequence[GroupMembers], state: States) -> float:
    """Bytes of state that this rank holds, as a share of those that a single process would hold."""
    whole = sum(
        cost_of_runs(tuple(param.shape), None, one.h, dtype=param.dtype, device=param.device.type).state_bytes
        for one in groups
        for param in one.params
    )
    own = [of_param for param, of_param in state.items() if isinstance(param, Tensor)]
    held = sum(x.nbytes for of_param in own for x in of_param.values() if isinstance(x, Tensor))
    return held / whole if whole else 1.0


def warn_of_sharing_nothing(groups: Sequence[GroupMembers]) -> None:
    """Warns a user two calls up that ranks share nothing of these groups, why, and what to do."""
    reason = reason_for_sharing_nothing([(one.params, one.h) for one in groups])
    warnings.warn(
        f"distributed='lossless' shares nothing: each of {world_size()} ranks holds all of the state and takes all of "
        f"the step. Ranks share whole blocks, and {reason}, which is the same for its owner however the rest is "
        f"shared. A smaller max_preconditioner_dim makes smaller blocks; num_ranks_per_group={world_size()} shares the "
        "rest all the same",
        RuntimeWarning,
        stacklevel=3,
    )
