"""The validation metrics that a workload's `evaluate` gives, and what is to be said where they are none."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trainers.workload.description import LOOP_METRICS


def metric_shares(given: Mapping[str, tuple[float, float]]) -> Mapping[str, tuple[float, float]]:
    """This rank's share of each metric as (sum, weight), from what `evaluate` gave.

    Raises:
        ValueError: it is none.
    """
    try:
        return {name: (float(total), float(weight)) for name, (total, weight) in given.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"evaluate must give {{metric: (sum, weight)}}, got {given!r:.200}") from error


def require_declared(declared: Collection[str], *, given: Collection[str], counted: Collection[str]) -> None:
    """Checks that a workload measures all that it says it does: a job may go by any of it.

    Args:
        declared: the names of the metrics that it is described with.
        given: of those that `evaluate` gave.
        counted: of what it counts.

    Raises:
        ValueError: one of them is missing; names it, and what was given.
    """
    missing = [name for name in declared if name not in (*LOOP_METRICS, *given, *counted)]
    if missing:
        raise ValueError(
            f"evaluate must give every metric that the workload declares: it did not give {', '.join(missing)}, "
            f"only {', '.join(given) or 'nothing'}"
        )
