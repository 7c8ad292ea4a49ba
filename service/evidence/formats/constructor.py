"""The part of a pasted script that makes an optimizer: what it imports, its lines, and what they leave unsaid, with the
sentences about what most other packages cannot say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.evidence.formats.family import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Constructor:
    """Python that makes `optimizer`, or `optimizers` where one alone cannot have all parameters.

    It finds the groups of parameters of the model in `matrices` and `vectors` (`split`).
    """

    imports: Sequence[str]
    """Lines, beside those of the script itself."""
    lines: Sequence[str]
    makes_several: bool = False
    """True if it makes `optimizers`, a list."""
    cannot_say: Sequence[str] = field(default_factory=list)
    """Parts of the config that the lines omit or say otherwise, a sentence each; empty: they take the same steps."""


def split(groups: str) -> list[str]:
    """Lines that make both, from an expression for groups of parameters that are the script's own to change."""
    return [
        "matrices, vectors = [], []  # groups of parameters: with two sides longer than 1, and the rest",
        f"for group in {groups}:",
        '    is_plain = group.pop("preconditioner", None) == "none"',
        '    parameters = list(group.pop("params"))',
        "    is_matrix = [not is_plain and sum(side > 1 for side in p.shape) > 1 for p in parameters]",
        "    for chosen, wanted in ((matrices, True), (vectors, False)):",
        "        members = [p for p, found in zip(parameters, is_matrix) if found is wanted]",
        '        chosen += [{**group, "params": members}] if members else []',
    ]


def call(name: str, groups: str, arguments: Mapping[str, Any], *, indent: str = "") -> list[str]:
    """Lines of a call with groups of parameters and keyword arguments."""
    return [
        f"{indent}{name}(",
        f"{indent}    {groups},",
        *(f"{indent}    {argument}={literal(value)}," for argument, value in arguments.items()),
        f"{indent})",
    ]


def several(calls: Sequence[tuple[str, str, Mapping[str, Any]]]) -> list[str]:
    """Lines that make `optimizers`, one for each (name, groups, arguments) of which there are parameters."""
    lines = ["optimizers = []"]
    for name, groups, arguments in calls:
        first, *others = call(name, groups, arguments, indent="        ")
        lines += [f"if {groups}:", "    optimizers.append(", first, *others[:-1], "        )", "    )"]
    return lines


@dataclass(frozen=True, slots=True)
class Expression:
    """An argument that is an expression, not a value."""

    text: str


def literal(value: Any) -> str:
    """A value of JSON as Python: optimizers document pairs as tuples, and JSON has only lists."""
    if isinstance(value, Expression):
        return value.text
    return repr(tuple(value)) if isinstance(value, list) else repr(value)


SETTINGS_OF_GROUPS = ("preconditioner", "weight_decay", "lr")
"""Settings of groups that mean the same to every optimizer of torch's kind, the first by `split`."""


def unsaid_of_groups(settings: Sequence[Mapping[str, Any] | None]) -> list[str]:
    """Settings of parameter groups for which other packages have no word."""
    names = {name for one in settings for name in one or () if name not in SETTINGS_OF_GROUPS}
    return [f"{name} of a group of parameters: has no word there" for name in sorted(names)]


def refreshes(f: Family, *, first: int, is_due_at: int) -> list[str]:
    """Sentences about packages that refresh all factors together, first at step `first`, and then wherever the step
    modulo the period is `is_due_at`."""
    found = []
    if f.stagger_refresh and f.period > 1:
        found.append(f"stagger_refresh: all factors are refreshed together there, every {f.period} steps")
    if f.start != first:
        found.append(
            f"the first refresh at step {f.start}: there it is at step {first}, and until then steps are plain"
        )
    if (f.start - is_due_at) % f.period:
        found.append(
            f"refreshes {f.period} steps apart from step {f.start} on: there they are at multiples of the period"
        )
    return found


def blocks(f: Family, theirs: str) -> list[str]:
    """Sentences about packages that cut long sides otherwise."""
    return [
        f"sides longer than {f.max_preconditioner_dim}: here they are cut into equal parts, there into {theirs}; and "
        f"kernels of convolutions, whose sides are merged here as far as {f.max_preconditioner_dim} allows"
    ]


def low_precision(f: Family, *, of_products: bool = True) -> list[str]:
    """Sentences about packages with float32 alone, and one norm of matrices; not `of_products`: those have a precision
    of their own there."""
    of_precision = ("state_dtype", *(("product_dtype",) if of_products else ()), "low_precision_weights")
    return f.without_word(*of_precision, "standardize_rows", "matrix_norm", "rank", "rest_scale")


def look_ahead(f: Family) -> list[str]:
    """Sentences about packages whose AdamW, which steps for the vectors, has no `beta3`."""
    return [f"beta3={f.beta3!r} of vectors: their AdamW has none there"] if f.beta3 != f.betas[0] else []


def of_adamw(f: Family) -> list[str]:
    """Sentences about settings that AdamW lacks where it steps for vectors, or for all with preconditioner="none"."""
    found = []
    if f.plain_method != "adam":
        found.append(f"grafting={f.plain_method!r}: vectors, which it steps for here, have AdamW there")
    elif not f.use_bias_correction:
        found.append("use_bias_correction=False of vectors: their AdamW always corrects there")
    if f.weight_decay > 0 and f.weight_decay_type != "decoupled":
        found.append(f"weight_decay_type={f.weight_decay_type!r}: there it is decoupled")
    return found
