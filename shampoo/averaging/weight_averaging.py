"""`WeightAveraging`: the optimizer around an optimizer that keeps averaged weights and swaps them in and out."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from shampoo import torch_internals
from shampoo.averaging import interpolation, trajectory
from shampoo.averaging.arguments import AveragingArguments, AveragingMethod, WarmUp, WeightDecayAt
from shampoo.state.buckets import state_dtype


class WeightAveraging(Optimizer):
    """Averages the weights that `optimizer` trains; works wherever an optimizer is expected.

        optimizer = WeightAveraging(Shampoo(model.parameters()), "ema", decay=0.999)
        ...                              # backward(), optimizer.step(), scheduler.step() as always
        with optimizer.averaged_weights():
            evaluate(model)

    Arguments after `optimizer` are those of `AveragingArguments`; the recurrences are in the package. They are read at
    every step and replaced as a whole: `averaging.arguments = dataclasses.replace(averaging.arguments, decay=0.99)`.

    Parameter groups and `state` are those of the wrapped optimizer, so learning-rate schedulers may be attached to
    either. Stepping the wrapped optimizer itself raises, because the average would miss that step.

    With schedule_free and primal a parameter without a gradient is left out of the step, a closure is evaluated once,
    and the parameters must not be written by others after the first step. Model buffers (running statistics of batch
    normalisation) are not averaged: recompute them within `averaged_weights()`.

    Raises:
        ValueError: an argument is illegal or has no effect; the message holds its name and value.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        method: AveragingMethod = "ema",
        *,
        decay: float | None = None,
        warm_up: WarmUp | None = None,
        update_frequency: int | None = None,
        num_snapshots: int | None = None,
        mu_x: float | None = None,
        mu_y: float | None = None,
        lr_power: float | None = None,
        weight_decay_at: WeightDecayAt | None = None,
    ) -> None:
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, WeightAveraging):
            raise ValueError(f"optimizer must be a torch.optim.Optimizer that averages nothing, got {optimizer!r}")
        arguments = AveragingArguments(
            method=method,
            decay=decay,
            warm_up=warm_up,
            update_frequency=update_frequency,
            num_snapshots=num_snapshots,
            mu_x=mu_x,
            mu_y=mu_y,
            lr_power=lr_power,
            weight_decay_at=weight_decay_at,
        )
        self.__setstate__(
            {"optimizer": optimizer, "arguments": arguments, "num_steps": 0, "averages": {}, "trained_weights": None}
        )
        self._allocate()

    # Optimizer.__init__ would add the groups a second time; the method that restores a pickled optimizer does the rest.
    def __setstate__(self, state: dict[str, Any]) -> None:
        self.optimizer: Optimizer = state["optimizer"]
        self._arguments: AveragingArguments = state["arguments"]
        self._num_steps: int = state["num_steps"]
        self._averages: dict[Tensor, dict[str, Any]] = state["averages"]
        self._trained_weights: dict[Tensor, Tensor] | None = state["trained_weights"]
        self._stepping = False
        super().__setstate__({"defaults": dict(self.optimizer.defaults)})
        averaging = weakref.ref(self)

        def refuse_a_step_from_outside(*_: object) -> None:
            watching = averaging()
            if watching is not None and not watching._stepping:
                raise RuntimeError("step the WeightAveraging: its average would miss a step of the optimizer inside it")

        self.optimizer.register_step_pre_hook(refuse_a_step_from_outside)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "optimizer": self.optimizer,
            "arguments": self._arguments,
            "num_steps": self._num_steps,
            "averages": self._averages,
            "trained_weights": self._trained_weights,
        }

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._arguments.in_use().items())
        return f"WeightAveraging({given}) of {self.optimizer!r}"

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the wrapped optimizer: the very same list, also after it loads a checkpoint."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The state of the wrapped optimizer."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def averages(self) -> Mapping[Tensor, Mapping[str, Any]]:
        """The averaging state of each parameter: tensors and lists of tensors, sharded like the parameter. Not to be
        changed."""
        return self._averages

    @property
    def arguments(self) -> AveragingArguments:
        """The current arguments."""
        return self._arguments

    @arguments.setter
    def arguments(self, arguments: AveragingArguments) -> None:
        """Replaces the arguments, from the next step on.

        Raises:
            ValueError: the method differs, which shapes the state; or mu_y does, while x is recovered with it.
        """
        for name in ("method", "mu_y"):
            old, new = getattr(self._arguments, name), getattr(arguments, name)
            if old != new:
                raise ValueError(f"{name} changed from {old!r} to {new!r}: it needs a new WeightAveraging")
        self._arguments = arguments

    @property
    def shows_average(self) -> bool:
        """The parameters hold the averaged weights, not those in training."""
        return self._trained_weights is not None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients as the wrapped optimizer does."""
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group to the wrapped optimizer and averages it from now on."""
        self._require_training("add a parameter group")
        self.optimizer.add_param_group(param_group)
        self._allocate()

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Steps the wrapped optimizer and updates the average; with a closure, gives its value. No host sync.

        Raises:
            RuntimeError: the parameters hold the averaged weights.
            ValueError: schedule_free, and a learning rate is a tensor on an accelerator, whose value it cannot know.
        """
        self._require_training("step")
        self._allocate()
        if not self._arguments.interpolates:
            loss = self._inner_step(closure)
            self._num_steps += 1
            frequency = self._arguments.update_frequency
            assert frequency is not None
            if self._num_steps % frequency == 0:
                trajectory.update(self._params(), self._averages, self._arguments)
            return loss
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        weighs = self._arguments.method == "schedule_free"
        lrs = {
            param: _known_lr(group["lr"]) if weighs else 0.0
            for group in self.param_groups
            for param in group["params"]
            if param.grad is not None
        }
        interpolation.step(lambda: self._inner_step(None), lrs, self._averages, self._arguments)
        self._num_steps += 1
        return loss

    def _inner_step(self, closure: Callable[[], float] | None) -> float | None:
        self._stepping = True
        try:
            # Without a closure there is no argument, so torch's schedulers and hooks see the call that the user would
            # make.
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        finally:
            self._stepping = False

    @torch.no_grad()
    def eval(self) -> None:
        """Puts the averaged weights into the parameters, which until the first update are the trained ones.

        Keeps one copy of the trained weights. Does nothing if the parameters hold the averages already.
        """
        if self._trained_weights is not None:
            return
        self._allocate()
        self._trained_weights = {param: param.clone() for param in self._params()}
        try:
            if self._arguments.interpolates:
                interpolation.write_average(self._params(), self._averages, self._arguments)
            else:
                trajectory.write_average(self._params(), self._averages)
        except BaseException:
            self.train()
            raise

    @torch.no_grad()
    def train(self) -> None:
        """Puts the weights in training back into the parameters, bit for bit. Does nothing if they are there."""
        if self._trained_weights is None:
            return
        for param, weights in self._trained_weights.items():
            param.copy_(weights)
        self._trained_weights = None

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Context in which the parameters hold the averaged weights; afterwards they hold their previous values, also
        after an error."""
        if self.shows_average:
            yield
            return
        self.eval()
        try:
            yield
        finally:
            self.train()

    def state_dict(self) -> dict[str, Any]:
        """{"optimizer": the wrapped optimizer's, "averaging": arguments, counts and a copy of the averages}.

        Loads with `torch.load(..., weights_only=True)`. Goes with the weights in training, so it is refused while the
        parameters hold the averaged ones.
        """
        self._require_training("make a checkpoint")
        torch_internals.before_saving(self)
        self._allocate()
        state_dict: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "averaging": {
                "arguments": self._arguments.in_use(),
                "num_steps": self._num_steps,
                "params": [_snapshot(self._averages[param]) for param in self._params()],
            },
        }
        return torch_internals.after_saving(self, state_dict)

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a `state_dict()`, its arguments included; training resumes bit for bit.

        Checks the averages before anything is written. To start averaging from the checkpoint of a bare optimizer, load
        that into `self.optimizer`.

        Raises:
            ValueError: the checkpoint is of another method, or its tensors do not fit these parameters.
        """
        self._require_training("load a checkpoint")
        state_dict = torch_internals.before_loading(self, state_dict)
        missing = {"optimizer", "averaging"} - set(state_dict)
        if missing:
            raise ValueError(f"not a checkpoint of WeightAveraging: it lacks {sorted(missing)}")
        self._allocate()
        saved = state_dict["averaging"]
        arguments = AveragingArguments(**saved["arguments"])
        if arguments.method != self._arguments.method:
            raise ValueError(f"checkpoint has method={arguments.method!r}, this averaging {self._arguments.method!r}")
        params = self._params()
        if len(saved["params"]) != len(params):
            raise ValueError(f"checkpoint averages {len(saved['params'])} parameters, this optimizer has {len(params)}")
        for index, (param, state) in enumerate(zip(params, saved["params"], strict=True)):
            _require_fit(state, self._averages[param], param, index=index)
        self.optimizer.load_state_dict(state_dict["optimizer"])
        for param, state in zip(params, saved["params"], strict=True):
            _copy_into(self._averages[param], state, param)
        self._arguments, self._num_steps = arguments, saved["num_steps"]
        torch_internals.after_loading(self)

    def _params(self) -> list[Tensor]:
        return [param for group in self.param_groups for param in group["params"]]

    def _allocate(self) -> None:
        """Gives state to the parameters that have none: at first all, later those of new groups, in whatever way these
        were added."""
        for group in self.param_groups:
            for param in group["params"]:
                if param in self._averages:
                    continue
                if not param.is_floating_point():
                    raise ValueError(f"parameters must be real and floating-point to be averaged, got {param.dtype}")
                # The wrapped optimizer would continue from its own copy of the weights, and never see y.
                if (
                    self._arguments.interpolates
                    and group.get("low_precision_weights") == "master"
                    and state_dtype(param.dtype) != param.dtype
                ):
                    raise ValueError(
                        f"method={self._arguments.method!r} cannot move {param.dtype} parameters of which the "
                        "optimizer keeps its own copy, got low_precision_weights='master'"
                    )
                module = interpolation if self._arguments.interpolates else trajectory
                self._averages[param] = module.new_state(param, self._arguments)

    def _require_training(self, action: str) -> None:
        if self.shows_average:
            raise RuntimeError(f"the parameters hold the averaged weights: call train() before you {action}")


def _known_lr(lr: Any) -> float:
    if isinstance(lr, Tensor) and lr.device.type != "cpu":
        raise ValueError(f"schedule_free needs the learning rate on the host, got lr={lr!r}")
    return float(lr)


def _snapshot(state: dict[str, Any]) -> dict[str, Any]:
    """A copy for a checkpoint. Snapshots of LAWA are shared, because they are never written; other tensors are
    copied."""
    return {
        name: value.clone() if isinstance(value, Tensor) else list(value) if isinstance(value, list) else value
        for name, value in state.items()
    }


def _require_fit(saved: dict[str, Any], own: dict[str, Any], param: Tensor, *, index: int) -> None:
    """Checks that a saved state can replace a parameter's own.

    Raises:
        ValueError: other names, shapes or dtypes; the message says which.
    """
    if set(saved) != set(own):
        raise ValueError(f"average of parameter {index} holds {sorted(saved)}, expected {sorted(own)}")
    for name, value in own.items():
        pairs = [(snapshot, param) for snapshot in saved[name]] if isinstance(value, list) else [(saved[name], value)]
        for found, expected in pairs:
            if not isinstance(expected, Tensor):
                continue
            if not isinstance(found, Tensor) or found.shape != expected.shape or found.dtype != expected.dtype:
                described = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
                raise ValueError(
                    f"{name!r} of parameter {index} is {described}, expected {expected.dtype} {tuple(expected.shape)}"
                )


def _copy_into(own: dict[str, Any], saved: dict[str, Any], param: Tensor) -> None:
    """Overwrites a parameter's own state with a saved one that fits, keeping device and strides."""
    for name, value in saved.items():
        if isinstance(value, Tensor):
            cast("Tensor", own[name]).copy_(value)
        elif isinstance(value, list):
            # With the parameter's strides, so that the arithmetic is the same as without the interruption.
            own[name] = [torch.empty_like(param, requires_grad=False).copy_(snapshot) for snapshot in value]
        else:
            own[name] = value
