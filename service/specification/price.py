"""The price of a job's device-hours, by the kind of node that its ranks take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.specification.resources import Resources

CPU, GPU = "cpu", "gpu"
"""The kinds of ranks that ask for no priced resource of the cluster by name."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an hour of one rank."""

    per_device_hour: float
    currency: str
    """Code of ISO 4217."""


def price_of(resources: Resources, prices: Mapping[str, float], *, currency: str) -> Price | None:
    """The price of a rank with these resources; None: its kind has none.

    Its kind is that custom resource which has a price, as machines declare their type, or else `gpu` or `cpu`. A part
    of a GPU costs that part.

    Args:
        prices: the prices of a device-hour, by kind.
    """
    kind = next((name for name in resources.custom_resources if name in prices), None)
    kind = kind or (GPU if resources.gpus_per_worker else CPU)
    if kind not in prices:
        return None
    return Price(prices[kind] * (resources.gpus_per_worker or 1.0), currency)
