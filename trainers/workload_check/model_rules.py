"""Rules on the model and the training loss."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainers.workload_check.batches import examples_of, rows_of
from trainers.workload_check.outcome import Broken, Doubtful, NotChecked
from trainers.workload_check.subject import OTHER_SEED, SEED, Subject

NUM_SHOWN = 5
"""Names that a message lists."""
LEARNING_STEPS = 20
LEARNING_RATE = 1e-3
"""Both are of AdamW: with its default rate so many steps lower the loss of nearly any model."""


def check_model(subject: Subject) -> str:
    """The model is a module on the CPU with real numbers to train, and the seed alone determines it."""
    model = subject.build_model(SEED)
    if not isinstance(model, nn.Module):
        raise Broken(f"build_model gives a {type(model).__name__}", "Give a torch.nn.Module")
    elsewhere = sorted({str(p.device) for p in (*model.parameters(), *model.buffers()) if p.device.type != "cpu"})
    if elsewhere:
        raise Broken(f"the model is built on {', '.join(elsewhere)}", "Build it on the CPU: the loop moves it")
    if shapeless := [name for name, parameter in model.named_parameters() if is_lazy(parameter)]:
        raise Broken(f"{_shown(shapeless)} have no shape yet", "Let build_model run a batch through the model")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise Broken("the model has no parameter that is trained", "At least one must have requires_grad=True")
    unusual = {n: p.dtype for n, p in model.named_parameters() if p.requires_grad and not p.is_floating_point()}
    if unusual:
        raise Broken(
            f"trained parameters are not real floating-point numbers: {_shown(list(unusual))} "
            f"({', '.join(sorted(map(str, set(unusual.values()))))})",
            "Keep a complex one as a real one and view it with torch.view_as_complex: Shampoo refuses it",
        )
    again = subject.build_model(SEED)
    if again is model:
        raise Broken("build_model gives the same module each time", "Build a new one: trials must not share parameters")
    different = _differing(model, again)
    if different:
        raise Broken(
            f"two models of one seed differ in {_shown(different)}",
            "Draw initial values from torch's global generator and nothing else: the loop seeds it",
        )
    num_parameters = sum(parameter.numel() for parameter in trained)
    if not _differing(model, subject.build_model(OTHER_SEED)):
        raise Doubtful("models of different seeds are equal: repeating a trial with another seed tests less")
    return f"{num_parameters:,} trained parameters"


def check_loss(subject: Subject) -> str:
    """The training loss of a batch is a finite scalar with gradient."""
    model, batch = subject.model().train(), subject.batch
    loss = subject.workload.loss(model, batch)
    if not isinstance(loss, Tensor):
        raise Broken(f"loss gives a {type(loss).__name__}", "Give the tensor, without .item()")
    if loss.shape != ():
        raise Broken(f"the loss has the shape {tuple(loss.shape)}", "Give one number: the mean over the batch")
    if not loss.is_floating_point():
        raise Broken(f"the loss has the type {loss.dtype}", "Give a floating-point scalar")
    if not loss.requires_grad:
        raise Broken(
            "the loss has no gradient", "Compute it from the model that `loss` gets, without no_grad or detach"
        )
    if not bool(loss.isfinite()):
        raise Broken(f"the loss of a fresh model is {loss.item()}", "Look for overflow, log(0) or 0/0")
    return f"{loss.item():.4g} before training"


def check_gradient(subject: Subject) -> str:
    """The gradient reaches every trained parameter, and is finite."""
    model = subject.model().train()
    _backward(subject.loss(model, subject.batch))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    without = [name for name, parameter in trained.items() if parameter.grad is None]
    if without:
        raise Broken(
            f"no gradient reaches {_shown(without)}",
            "Use them in the loss (0 times the sum of what their module gives will do) or set requires_grad=False: "
            "several ranks would wait for their gradients",
        )
    sparse = [name for name, p in trained.items() if p.grad is not None and p.grad.layout is not torch.strided]
    if sparse:
        raise Broken(
            f"the gradient of {_shown(sparse)} is sparse",
            "Make embeddings with sparse=False: of all optimizers only plain SGD takes such a gradient, on one rank",
        )
    broken = [name for name, p in trained.items() if p.grad is not None and not bool(p.grad.isfinite().all())]
    if broken:
        raise Broken(f"the gradient is not finite at {_shown(broken)}", "Look for the square root or logarithm of 0")
    return f"it reaches all {len(trained)} parameters"


def check_mean_loss(subject: Subject) -> str:
    """The loss is a mean: that of a batch is the mean of those of its halves."""
    batch = subject.batch
    num_examples = len(examples_of(batch))
    if num_examples < 2:
        raise NotChecked("a batch has one example")
    model = subject.model().eval()  # as in training, statistics of the batch would tell the halves apart
    half = num_examples // 2
    parts = (rows_of(batch, 0, half), rows_of(batch, half, 2 * half))
    whole, again = (subject.loss(model, rows_of(batch, 0, 2 * half)).item() for _ in range(2))
    if not math.isclose(whole, again, rel_tol=1e-3, abs_tol=1e-6):
        raise NotChecked("the loss of one batch is another each time, as where it draws noise")
    halves = [subject.loss(model, part).item() for part in parts]
    mean = sum(halves) / 2
    if math.isclose(whole, mean, rel_tol=1e-3, abs_tol=1e-6):
        return "two ranks with half a batch each average to the same"
    if math.isclose(whole, 2 * mean, rel_tol=1e-2):
        raise Broken(
            f"the loss is a sum over the batch ({whole:.4g}; its halves {halves[0]:.4g} and {halves[1]:.4g})",
            "Divide by the number of examples: otherwise it depends on the number of ranks",
        )
    raise Doubtful(
        f"the loss of a batch, {whole:.4g}, is not the mean of those of its halves, {mean:.4g}: with several ranks it "
        "will not be the same as with one"
    )


def check_learning(subject: Subject) -> str:
    """Some steps on one batch lower its loss."""
    model = subject.model().train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise NotChecked("the model has nothing to train")
    optimizer = torch.optim.AdamW(trained, lr=LEARNING_RATE)
    losses = []
    for _ in range(LEARNING_STEPS):
        loss = subject.loss(model, subject.batch)
        optimizer.zero_grad()
        _backward(loss)
        optimizer.step()
        losses.append(loss.item())
    if not losses[-1] < losses[0]:
        raise Doubtful(
            f"{LEARNING_STEPS} steps of AdamW (lr {LEARNING_RATE}) on one batch take its loss from {losses[0]:.4g} to "
            f"{losses[-1]:.4g}: does it depend on the parameters as it should?"
        )
    return f"from {losses[0]:.4g} to {losses[-1]:.4g} in {LEARNING_STEPS} steps on one batch"


def _backward(loss: Tensor) -> None:
    loss.backward()


def _differing(one: nn.Module, other: nn.Module) -> list[str]:
    """Names of the parameters and buffers that are not equal in every bit."""
    states = dict(one.state_dict()), dict(other.state_dict())
    names = states[0].keys() | states[1].keys()
    return sorted(n for n in names if not _equal(states[0].get(n), states[1].get(n)))


def _equal(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and bool(((one == other) | (one.isnan() & other.isnan())).all())
        )
    return type(one) is type(other)


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - NUM_SHOWN} more" if len(names) > NUM_SHOWN else ""
    return ", ".join(names[:NUM_SHOWN]) + more
