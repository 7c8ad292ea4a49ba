"""The digits with troubles, for the ranks."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from torch import Tensor, nn

from trainers.data.order import rank_batches
from trainers.workloads.digits.digits import DigitsMLP


class TroubledDigits(DigitsMLP):
    """A small network on the digits whose last rank fails at a given step, in a chosen way."""

    def __init__(
        self,
        *,
        trouble: str,
        trouble_step: int,
        seconds_per_step: float,
        hurry_file: str,
        slow_from_step: int,
        slow_seed: int,
        steps_file: str,
        once_directory: str,
    ) -> None:
        super().__init__(hidden_sizes=[16], dropout=0.0, label_smoothing=0.0)
        self._trouble = trouble
        self._trouble_step = trouble_step
        self._seconds_per_step = seconds_per_step
        self._hurry = Path(hurry_file) if hurry_file else None
        self._slow_from_step = slow_from_step
        self._slow_seed = slow_seed
        self._steps = Path(steps_file) if steps_file else None
        self._once = Path(once_directory) / trouble if once_directory else None

    def train_batches(
        self, *, batch_size: int, seed: int, rank: int, world_size: int, start_step: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        order = rank_batches(
            self.num_train_examples,
            batch_size=batch_size,
            seed=seed,
            rank=rank,
            world_size=world_size,
            start_step=start_step,
        )
        for step, indices in enumerate(order, start=start_step):
            if self._steps is not None and rank == 0:
                with self._steps.open("a") as file:
                    file.write(f"{step + 1}\n")
            if step >= self._slow_from_step and self._slow_seed in (-1, seed):
                self._sleep()
            if step == self._trouble_step and rank == world_size - 1:
                self._meet_trouble()
            yield self.batch(indices)

    def loss(self, model: nn.Module, batch: object) -> Tensor:
        loss = super().loss(model, batch)
        return loss * float("nan") if self._trouble == "diverge" else loss

    def _sleep(self) -> None:
        end = time.monotonic() + self._seconds_per_step
        while (left := end - time.monotonic()) > 0 and not (self._hurry is not None and self._hurry.exists()):
            time.sleep(min(left, 0.2))

    def _meet_trouble(self) -> None:
        if self._once is not None:
            if self._once.exists():
                return
            self._once.touch()
        match self._trouble:
            case "error":
                raise KeyError("label of image 17")
            case "memory":
                raise MemoryError("no room for the batch")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                sys.exit(3)
            case "leave":
                os._exit(7)
            case "crash":
                ctypes.string_at(0)
            case "full":
                Path("/dev/full").write_text("what a disk without room refuses")
            case "hang":
                time.sleep(1e6)
            case "words":
                sys.stdout.write("Python's words\n")
                ctypes.CDLL(None).puts(b"C's words")
                says = 'import os; print("a child\'s words"); os._exit(0)'  # with the contents of its buffers
                subprocess.run([sys.executable, "-S", "-c", says], check=True)
                sys.stderr.write("an error's words\n")
            case "garbage":
                sys.stdout.buffer.write(bytes(range(256)) * 4000 + b"\n")
                sys.stderr.buffer.write(b"\xff\xfe\x00\x1b[2J\n" * 1000)
                sys.stdout.flush()
