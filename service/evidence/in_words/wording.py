"""Numbers, spans of time and names of optimizers as a person reads them, one way for all callers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

DASH = "–"
FAR_SHARE = 10.0
"""Share beyond which a figure is no longer told: a reader takes "-1313.0%" for a slip."""
SHARE_DIGITS = 4
"""Digits behind the point of a percentage, at most: one that is 0 in all of them has no sign."""
OPTIMIZER_TITLES = {
    "shampoo": "Shampoo",
    "adamw": "AdamW",
    "sgd": "SGD",
    "muon": "Muon",
    "soap-peer": "SOAP of pytorch_optimizer",
    "lora-rite": "LoRA-RITE",
}


def number(value: float | None, digits: int = 4) -> str:
    """A measured value with `digits` significant digits, trailing zeros kept so that columns line up."""
    if value is None or not math.isfinite(value):
        return DASH
    if 10**digits <= abs(value) < 10 ** (digits + 2):
        return f"{value:.0f}"
    return f"{value:#.{digits}g}".removesuffix(".")


def named_values(values: Mapping[str, float], metric: str) -> list[str]:
    """The values of a point of a front, that of the objective `metric` first: stored JSON need not keep the order."""
    return [f"{name} {number(values[name])}" for name in sorted(values, key=lambda name: name != metric)]


def spread(standard_deviation: float) -> str:
    """A standard deviation, as it follows its mean."""
    return f"± {number(standard_deviation, 2)}"


def counted(count: int, thing: str) -> str:
    """A number with what it counts: `1 trial`, `1,200 trials`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def joined(parts: Iterable[object], conjunction: str = "and") -> str:
    """One part or more in a row, the last one behind a conjunction: `2, 4 and 6`."""
    *others, last = map(str, parts)
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def share(value: float) -> str:
    """A share without its sign, in percent."""
    return f"{abs(value):.1%}"


def signed_share(value: float) -> str:
    """A share with its sign, in percent; as far as `FAR_SHARE`, beyond which no figure says more.

    A small one has as many digits as show its sign: an interval that ends just short of 0 decides a verdict.
    """
    if abs(value) > FAR_SHARE:
        return f"{'above' if value > 0 else 'below'} {math.copysign(FAR_SHARE, value):+,.0%}"
    told = (f"{value:+.{digits}%}" for digits in range(1, SHARE_DIGITS + 1) if round(100 * value, digits))
    return next(told, "0.0%")


def chance(probability: float) -> str:
    """A probability as far as it is known: to a tenth, or as beyond 5% and 95%."""
    if probability < 0.05:
        return "less than 5%"
    return "more than 95%" if probability > 0.95 else f"about {min(9, max(1, round(10 * probability)))}0%"


def times(ratio: float) -> str:
    """A ratio as a factor: `1.8×`."""
    return f"{ratio:.2g}×" if ratio < 99.5 else f"{ratio:,.0f}×"


def times_words(factor: float) -> str:
    """A factor before what it is of: `half`, `twice`, `4 times`."""
    return {0.5: "half", 2.0: "twice"}.get(factor, f"{factor:g} times")


def duration(seconds: float | None) -> str:
    """Seconds as at most two units: `42 ms`, `8.3 s`, `2 min 05 s`, `1 h 04 min`, `3 d 02 h`."""
    if seconds is None:
        return DASH
    if 0 < seconds < 0.0995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def mebibytes(num_bytes: float) -> str:
    """An amount of memory: `3.2 MiB`, `1,204 MiB`."""
    mib = num_bytes / 2**20
    return f"{mib:,.0f} MiB" if mib >= 100 else f"{mib:.3g} MiB"


def measured_words(metric: str, value: float | None) -> str:
    """A value of a metric in the unit that its name tells."""
    if value is None or not math.isfinite(value):
        return "not finite"
    if metric.endswith("_bytes"):
        return mebibytes(value)
    if metric == "step_seconds":
        return seconds_words(value)
    if metric.endswith("_seconds"):
        return duration(value)
    if metric.startswith(("num_", "optimizer_num_")) and value == int(value):
        return f"{value:,.0f}"
    return number(value) if value else "0"


def seconds_words(seconds: float | None) -> str:
    """A short time: `4.2 ms`, `1.30 s`."""
    if seconds is None:
        return DASH
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def device_hours(spent: float, limit: float) -> str:
    """The device-hours spent and allowed."""
    return f"{spent:.3g} of {limit:g} device-hours"


def device_time(hours: float) -> str:
    """The device-hours spent: `0.42 device-hours`, or of a small job `2 min 05 s of one device`."""
    return " ".join(device_time_parts(hours))


def device_time_parts(hours: float) -> tuple[str, str]:
    """The same as a number and its unit: `("0.42", "device-hours")`, `("2 min 05 s", "of one device")`."""
    return (f"{hours:,.3g}", "device-hours") if hours >= 0.1 else (duration(3600 * hours), "of one device")


def time_left(seconds: float) -> str:
    """An estimate of the time that is left: `about 42 s`, or `a moment` where it has run out."""
    if seconds < 1.0:
        return "a moment"
    return f"about {f'{seconds:.0f} s' if seconds < 59.5 else duration(seconds)}"


def cost_words(cost: float | None, currency: str | None, limit: float | None) -> str:
    """Words on what a job has cost so far, and may cost; empty: there is no price."""
    if cost is None or currency is None:
        return ""
    return f"{cost:.2f} {currency}" if limit is None else f"{cost:.2f} of {limit:.2f} {currency}"


def optimizer_title(name: str) -> str:
    """An optimizer as people call it."""
    return OPTIMIZER_TITLES.get(name, name)


def rivals_title(optimizers: Sequence[str]) -> str:
    """The baselines that a search is compared with: `AdamW`, or `the best of AdamW and Muon`."""
    titles = [optimizer_title(name) for name in optimizers]
    if len(titles) < 2:
        return "".join(titles)
    return f"the best of {', '.join(titles[:-1])} and {titles[-1]}"
