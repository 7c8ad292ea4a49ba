"""The original states of parameters: the memory that steps compute with, whatever other code puts in its place."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from shampoo.state.transfer import require_same_layout

States: TypeAlias = MutableMapping[Tensor, dict[str, Any]]
"""The state of an optimizer, by parameter."""
Copy: TypeAlias = tuple[Mapping[str, Any], dict[str, Any]]
"""The values of a state, and the state to write them to."""


def beside_parameters(state: Mapping[Any, Any]) -> dict[Any, Any]:
    """The entries that others keep under keys that are not parameters, which torch's optimizers allow."""
    return {key: held for key, held in state.items() if not isinstance(key, Tensor)}


def require_no_positions(beside: Mapping[Any, Any], *, num_params: int) -> None:
    """Checks the keys of other entries than the states of parameters, before these states are saved by position.

    Raises:
        ValueError: one is the position of a parameter, so one of the two would be lost.
    """
    taken = [key for key in beside if key in range(num_params)]
    if taken:
        raise ValueError(
            f"optimizer.state has the keys {taken} beside those of parameters, under which a state_dict() has the "
            "states of the parameters at these positions: keep what is there under names, which are strings"
        )


def forget_parameters(state: MutableMapping[Any, Any]) -> None:
    """Removes the states of all parameters, and nothing else."""
    for param in [key for key in state if isinstance(key, Tensor)]:
        del state[param]


def replace_beside(state: MutableMapping[Any, Any], found: Mapping[Any, Any]) -> None:
    """Replaces the entries other than the states of parameters by `found`."""
    for key in beside_parameters(state):
        del state[key]
    state.update(found)


@dataclass(frozen=True, slots=True)
class _Held:
    """The state of one parameter: a count of steps, and tensors."""

    state: dict[str, Any]
    made: dict[str, Any]
    """The same, with the tensors that were made."""
    memory: dict[str, Tensor]
    """Their memory, as tensors that no other code has."""

    def has_memory_of(self, name: str, x: Any) -> bool:
        """True if x, which replaced the tensor of this name, has the same memory: there is nothing to copy."""
        return name in self.memory and x.data_ptr() == self.memory[name].data_ptr()

    def restore(self) -> dict[str, Any]:
        """Gives the tensors their original memory again, and returns the original state."""
        for name, memory in self.memory.items():
            if self.made[name].data_ptr() != memory.data_ptr():
                self.made[name].data = memory
        return dict(self.made)


class _Memory:
    """Addresses of the tensors of states, to be compared in one pass."""

    def __init__(self, held: Sequence[_Held]) -> None:
        self._states = [one.state for one in held]
        self._lengths = [len(one.made) for one in held]
        self._are_tensors = [name in one.memory for one in held for name in one.made]
        self._are_counts = [not is_tensor for is_tensor in self._are_tensors]
        self._addresses = [x.data_ptr() for one in held for x in one.memory.values()]

    def is_of(self, state: States) -> bool:
        """True if `state` holds these states, and each begins with its original entries, in their order."""
        # Called in each step: no Python loop, and no hash of a tensor.
        if not all(map(operator.is_, state.values(), self._states)):
            return False
        of_each = map(itertools.islice, map(dict.values, self._states), self._lengths)
        values = [*itertools.chain.from_iterable(of_each)]
        if len(values) != len(self._are_tensors):
            return False
        counts = itertools.compress(values, self._are_counts)
        tensors = itertools.compress(values, self._are_tensors)
        try:
            # The memory is held here, so nothing else can have its addresses.
            return {*map(type, counts)} <= {int} and [*map(Tensor.data_ptr, tensors)] == self._addresses
        except TypeError:  # something other than a tensor is there
            return False


class HeldStates:
    """The states that an optimizer's steps read and write, and whose tensors users can access, too."""

    def __init__(self) -> None:
        self._held: dict[Tensor, _Held] = {}
        self._memory: _Memory | None = None
        """None: to be collected again."""

    def hold(self, param: Tensor, state: dict[str, Any]) -> None:
        """Records the state of a parameter that has just been made."""
        made = dict(state)
        # If other code gives one of its tensors new memory, these keep theirs.
        memory = {name: x.detach() for name, x in made.items() if isinstance(x, Tensor)}
        self._held[param] = _Held(state, made, memory)
        self._memory = None

    def take_back(self, state: States, positions: Mapping[Tensor, int]) -> list[Copy]:
        """Puts back the states, tensors and memory that other code has replaced.

        Other code does so when it moves the state of an optimizer to a device and back. Steps compute with the original
        memory, so they would neither see the new values nor change them.

        Args:
            positions: of the parameters, for messages.

        Returns:
            The values to write to what has been put back; none if nothing was replaced.

        Raises:
            ValueError: one does not have the names, shapes and dtypes that the state was made with; nothing is put back
                then.
        """
        if self._memory is None:
            self._memory = _Memory([*self._held.values()])
        if self._memory.is_of(state):
            return []
        found = [
            {name: _of_itself(x) for name, x in state[param].items() if name in held.made}
            for param, held in self._held.items()
        ]
        for (param, held), theirs in zip(self._held.items(), found, strict=True):
            require_same_layout(theirs, held.made | held.memory, parameter=positions[param])
        for key in beside_parameters(state):  # behind the parameters, where nobody looks for a parameter's state
            state[key] = state.pop(key)
        copies: list[Copy] = []
        for (param, held), theirs in zip(self._held.items(), found, strict=True):
            beside = {name: x for name, x in state[param].items() if name not in held.made}
            elsewhere = {name: x for name, x in theirs.items() if not held.has_memory_of(name, x)}
            ours = held.restore()
            held.state.clear()
            held.state.update(ours | beside)
            state[param] = held.state
            copies.append((elsewhere, held.state))
        return copies


def _of_itself(x: Any) -> Any:
    """A tensor that keeps its memory when x is given another."""
    return x.detach() if isinstance(x, Tensor) else x
