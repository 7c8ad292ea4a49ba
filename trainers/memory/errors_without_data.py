"""The errors that code raises because its tensors have no data, told from those that it would raise with them, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

from trainers.workload.batches import tensors_in


class NotesErrorsWithoutData(TorchFunctionMode):
    """Notes what torch's functions raise of tensors on the meta device, as of one that is asked for its values."""

    def __init__(self) -> None:
        super().__init__()
        self._noted: list[BaseException] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        try:
            return func(*args, **given)
        except Exception as error:
            if any(tensor.is_meta for tensor in tensors_in((args, given))):
                self._noted.append(error)
            raise

    def may_have_caused(self, error: BaseException) -> bool:
        """True if an error may be none with data: it follows from a noted one, or no kernel is there for the device."""
        found: BaseException | None = error
        while found is not None:
            if isinstance(found, NotImplementedError) or any(found is noted for noted in self._noted):
                return True
            found = found.__cause__ or found.__context__
        return False
