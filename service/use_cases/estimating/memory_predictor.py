"""A process that can build models, and predicts the memory of a rank of trials before any of them is launched."""

from __future__ import annotations

import importlib.util
import os
import select
import tempfile
import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeVar, assert_never

from service.specification.planning import JobPlan
from trainers.config import TrialConfig
from trainers.config_part import Refusal, RefusedPart
from trainers.data.roots import DataRoots
from trainers.identity.values import ModelShape
from trainers.memory.messages import (
    ActivationMemory,
    Answer,
    KeptMemory,
    PredictionProblem,
    ProblemKind,
    Quantity,
    Question,
    TrainedShape,
    answer_from_line,
)
from trainers.processes.starting import Streams, start
from trainers.workloads.describe import environment_of_children


class NotPredictable(Exception):
    """The memory of a trial cannot be predicted; the message says why."""


class WorkloadRefused(NotPredictable):
    """The workload cannot be built with the job's options, so no trial of the job can be built."""

    def __init__(self, message: str, option: str | None) -> None:
        super().__init__(message)
        self.option = option
        """The refused option, or an element of it; empty: it is not known which; None: there is no such workload
        here."""

    @property
    def field(self) -> str:
        """The job's field at fault: `workload.name`, or `workload.options` or a field below it."""
        if self.option is None:
            return "workload.name"
        return f"workload.options.{self.option}" if self.option else "workload.options"


class OptimizerRefused(NotPredictable):
    """The optimizer is not for the workload's model, so no trial of its side can be built; or it refuses the arguments
    of this trial."""

    def __init__(self, message: str, *, is_of_arguments: bool) -> None:
        super().__init__(message)
        self.is_of_arguments = is_of_arguments


class ConstructionFailed(NotPredictable):
    """The workload's constructor or its `build_model` raised an error other than a refusal of its options; the message
    has it."""


class StepFailed(NotPredictable):
    """The workload's code raised an error in a step with a few examples; the message has it."""


Kind = TypeVar("Kind", bound=Answer)


def _refused(refusal: Refusal) -> NotPredictable:
    match refusal.part:
        case RefusedPart.WORKLOAD:
            return WorkloadRefused(refusal.message, None)
        case RefusedPart.OPTIONS:
            return WorkloadRefused(refusal.message, refusal.option)
        case RefusedPart.OPTIMIZER | RefusedPart.ARGUMENTS:
            return OptimizerRefused(refusal.message, is_of_arguments=refusal.part is RefusedPart.ARGUMENTS)
        case RefusedPart.OTHER:
            return NotPredictable(refusal.message)
    assert_never(refusal.part)


def _failed(problem: PredictionProblem) -> NotPredictable:
    match problem.kind:
        case ProblemKind.CONSTRUCTION:
            return ConstructionFailed(problem.message)
        case ProblemKind.STEP:
            return StepFailed(problem.message)
        case ProblemKind.UNKNOWN:
            return NotPredictable(problem.message)
    assert_never(problem.kind)


class MemoryPredictor:
    """A process that predicts trials' memory. Use it as a context manager, or close it; it ends with this one."""

    def __init__(self, plan: JobPlan, *, data_roots: DataRoots | None = None) -> None:
        """Starts the process; it imports torch while this one continues.

        Args:
            data_roots: the directories that the workload may read; None: all that this process may.

        Raises:
            NotPredictable: this installation has no torch.
            OSError: no process could be started, or there is no room for temporary files.
        """
        if importlib.util.find_spec("torch") is None:
            raise NotPredictable("torch is not installed here")
        resources = plan.specification.resources
        self._world_size = resources.workers_per_trial
        self._device_type = resources.device
        self._data_roots = data_roots
        self._buffer = b""
        self._is_closed = False
        self.device_bytes: int | None = None
        """Memory of this machine's first GPU, once something was predicted for GPU ranks; None: none is known."""
        self.weights_bytes = 0
        """Bytes of the parameters and buffers of the model of the last prediction."""
        self.num_train_examples: int | None = None
        """The number of training examples of the workload of the last prediction."""
        with ExitStack() as ours, ExitStack() as theirs:
            noise = theirs.enter_context(tempfile.TemporaryFile())
            asked, self._questions = os.pipe()
            theirs.callback(os.close, asked)
            ours.callback(os.close, self._questions)
            self._answers, answered = os.pipe()
            theirs.callback(os.close, answered)
            ours.callback(os.close, self._answers)
            self._process = start(
                "trainers.memory.prediction",
                (),
                Streams(asked, answered, noise.fileno()),
                environment=environment_of_children(),
            )
            self._pipes = ours.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, and whatever a workload has started in it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._process.end()
        self._pipes.close()

    def predict(self, config: TrialConfig, *, timeout_seconds: float) -> int:
        """Bytes that a rank of the trial needs at least.

        Raises:
            NotPredictable: the model cannot be built here, or not in this time.
            ConstructionFailed: the workload's constructor or its `build_model` raised an error.
            WorkloadRefused: the workload refuses its options, for instance a path where there is nothing.
            OptimizerRefused: the optimizer is not for the workload's model, or refuses its arguments.
        """
        kept = self._ask(config, Quantity.KEPT, KeptMemory, timeout_seconds=timeout_seconds)
        self.device_bytes, self.num_train_examples = kept.device_bytes, kept.num_train_examples
        self.weights_bytes = kept.weights_bytes
        return kept.num_bytes

    def activations(self, config: TrialConfig, *, timeout_seconds: float) -> int:
        """Bytes of a rank's activations in a step of the trial, its batch included.

        Raises:
            NotPredictable: a step cannot be run here, or not in this time.
            StepFailed: the workload's code raised an error in it.
        """
        measured = self._ask(config, Quantity.ACTIVATIONS, ActivationMemory, timeout_seconds=timeout_seconds)
        return measured.num_bytes

    def shape(self, config: TrialConfig, *, timeout_seconds: float) -> ModelShape:
        """The shape of the trial's model.

        Raises:
            NotPredictable: the model cannot be built here, or not in this time, or nothing of it is trained.
        """
        return self._ask(config, Quantity.SHAPE, TrainedShape, timeout_seconds=timeout_seconds).shape

    def _ask(self, config: TrialConfig, quantity: Quantity, kind: type[Kind], *, timeout_seconds: float) -> Kind:
        if self._is_closed:
            raise NotPredictable("the process that predicts has ended")
        question = Question(config, quantity, self._world_size, self._device_type, self._data_roots)
        try:
            deadline = time.monotonic() + timeout_seconds
            self._send(question.to_line().encode() + b"\n", deadline)
            answer = answer_from_line(self._line(deadline))
            if not isinstance(answer, (kind, Refusal, PredictionProblem)):
                raise ValueError(f"asked for {quantity}, it answered {answer}")
        except (OSError, EOFError, ValueError) as error:
            self.close()  # a late answer would be taken for that of another question
            raise NotPredictable(f"the process that predicts failed: {error}") from error
        if isinstance(answer, Refusal):
            raise _refused(answer)
        if isinstance(answer, PredictionProblem):
            raise _failed(answer)
        return answer

    def _send(self, question: bytes, deadline: float) -> None:
        """Raises: OSError: it is not taken in time."""
        while question:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [self._questions], [], left)[1]:
                raise TimeoutError("to import what builds the model takes too long")
            question = question[os.write(self._questions, question[: select.PIPE_BUF]) :]

    def _line(self, deadline: float) -> bytes:
        """Raises: OSError: it does not come."""
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                raise TimeoutError("to build the model, or to run a step of it, takes too long")
            chunk = os.read(self._answers, 65536)
            if not chunk:
                raise EOFError("it ended without an answer")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
