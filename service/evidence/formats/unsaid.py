"""Sentences about what most other packages cannot say."""

from __future__ import annotations

from service.evidence.formats.family import Family


def refreshes(f: Family, *, first: int, is_due_at: int) -> list[str]:
    """Of packages that refresh all factors together, first at step `first`, and then wherever the step modulo the
    period is `is_due_at`."""
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
    """Of packages that cut long sides otherwise."""
    return [
        f"sides longer than {f.max_preconditioner_dim}: here they are cut into equal parts, there into {theirs}; and "
        f"kernels of convolutions, whose sides are merged here as far as {f.max_preconditioner_dim} allows"
    ]


def low_precision(f: Family) -> list[str]:
    """Of packages with float32 alone, and one norm of matrices."""
    of_precision = ("state_dtype", "product_dtype", "low_precision_weights")
    return f.without_word(*of_precision, "standardize_rows", "matrix_norm", "rank", "rest_scale")


def look_ahead(f: Family) -> list[str]:
    """Of packages whose AdamW, which steps for the vectors, has no `beta3`."""
    return [f"beta3={f.beta3!r} of vectors: their AdamW has none there"] if f.beta3 != f.betas[0] else []


def of_adamw(f: Family) -> list[str]:
    """Settings that AdamW lacks where it steps for vectors, or for everything with preconditioner="none"."""
    found = []
    if f.plain_method != "adam":
        found.append(f"grafting={f.plain_method!r}: vectors, which it steps for here, have AdamW there")
    elif not f.use_bias_correction:
        found.append("use_bias_correction=False of vectors: their AdamW always corrects there")
    if f.weight_decay > 0 and f.weight_decay_type != "decoupled":
        found.append(f"weight_decay_type={f.weight_decay_type!r}: there it is decoupled")
    return found
