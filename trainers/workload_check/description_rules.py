"""Rules on what a workload says of itself, and on how it is built."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from trainers.config import InvalidConfig, Json
from trainers.workload.description import WorkloadDescription
from trainers.workload.user_workload import explain, problems_of
from trainers.workload_check.outcome import Broken, Doubtful, NotChecked
from trainers.workload_check.subject import Subject
from trainers.workloads.registry import describe, refused_options

_METHODS = ("build_model", "loss", "evaluate")
_KEYWORDS = {
    "train_batches": ("batch_size", "seed", "rank", "world_size", "start_step"),
    "evaluate": ("rank", "world_size", "device"),
}


def check_description(subject: Subject) -> str:
    """The description is complete and consistent, and the options exist."""
    try:
        description = describe(subject.name)
    except InvalidConfig as error:
        raise Broken(str(error.message), "`shampoo-tuner workload new my-model` prints an example") from error
    _check_options(description, subject.options)
    problems = problems_of(description)
    if problems:
        raise Broken("; ".join(problems), "Correct the description")
    if "train_loss" not in description.metrics:
        raise Broken("the metrics lack train_loss", 'The loop measures it: add "train_loss": "minimize"')
    try:
        takes = subject.constructor_options
    except InvalidConfig as error:
        raise Broken(error.message, "Correct the description's implementation") from error
    unknown = sorted(description.options.keys() - takes.keys())
    forgotten = sorted(name for name in takes.keys() - description.options.keys() if takes[name].required)
    if unknown:
        raise Broken(f"the constructor has no parameter {', '.join(unknown)}", "Rename the option or the parameter")
    if forgotten:
        raise Broken(f"the constructor requires {', '.join(forgotten)}", "Add it to the description's options")
    if description.default_evaluate_every > description.default_num_steps:
        every, steps = description.default_evaluate_every, description.default_num_steps
        raise Doubtful(f"default_evaluate_every {every} exceeds default_num_steps {steps}: one measurement at the end")
    return f"metrics {', '.join(description.metrics)}; options {', '.join(description.options) or 'none'}"


def _check_options(description: WorkloadDescription, options: Mapping[str, Json]) -> None:
    """Checks that the options are those of the workload, and says which to add."""
    refused = list(refused_options(description, options))
    missing = [name for name, option in description.options.items() if option.required and options.get(name) is None]
    if refused:
        mend = (
            f"Add {' '.join(f'--option {name}=...' for name in missing)}"
            if missing
            else "Leave it out, rename it or give another value"
        )
        raise Broken("; ".join(map(str, refused)), mend)


def check_construction(subject: Subject) -> str:
    """The workload can be built and has the protocol's methods with their keywords."""
    try:
        workload = subject.build()
    except InvalidConfig as error:
        raise Broken(error.message, "Mend that first") from error
    except ValueError as error:
        raise Broken(f"the constructor refuses its options: {explain(error)}", "Give others with --option") from error
    missing = [name for name in _METHODS if not callable(getattr(workload, name, None))]
    if missing:
        raise Broken(
            f"there is no method {', '.join(missing)}", "trainers.workload.protocol.Workload says what each must do"
        )
    _check_batch_method(workload)
    for method, keywords in _KEYWORDS.items():
        if not callable(getattr(workload, method, None)):
            continue
        refused = _refused_keywords(getattr(workload, method), keywords)
        if refused:
            raise Broken(
                f"{method} takes no argument {', '.join(refused)}", f"The loop calls it with {', '.join(keywords)}"
            )
    num_examples = workload.num_train_examples
    if not isinstance(num_examples, int) or isinstance(num_examples, bool) or num_examples < 1:
        advice = "Make it a property that gives the size of the training set over all ranks"
        raise Broken(
            f"num_train_examples must be an integer >= 1, got {num_examples!r:.80}",
            "Are the data where the class looks for them?" if num_examples == 0 else advice,
        )
    batch_size = subject.checked_description.default_batch_size
    if batch_size > num_examples:
        raise Doubtful(
            f"default_batch_size {batch_size:,} exceeds the {num_examples:,} training examples: each batch has some of "
            "them more than once"
        )
    return f"{num_examples:,} training examples"


def _check_batch_method(workload: object) -> None:
    """Checks that one method gives batches, and that `batch` can be called with the indices."""
    if callable(getattr(workload, "train_batches", None)):
        return
    if not callable(batch := getattr(workload, "batch", None)):
        raise Broken(
            "there is neither batch nor train_batches",
            "Add batch(indices): the examples of these numbers; or train_batches, to read ahead",
        )
    try:
        inspect.signature(batch).bind(None)
    except TypeError as error:
        raise Broken(f"batch cannot be called with the indices alone: {error}", "Take `indices` and no more") from error
    except ValueError:  # written in C; its batches will tell
        return


def _refused_keywords(method: Any, keywords: tuple[str, ...]) -> list[str]:
    try:
        parameters = inspect.signature(method).parameters
    except ValueError as error:  # written in C
        raise NotChecked(f"{method!r} does not tell its arguments") from error
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name in keywords if name not in parameters or parameters[name].kind not in by_name]
