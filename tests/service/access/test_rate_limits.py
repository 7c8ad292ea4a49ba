"""Token buckets, by a clock that stands until it is moved."""

from __future__ import annotations

import pytest

from service.access import rate_limits
from service.access.rate_limits import BURST_SECONDS, RateLimit


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    now = [0.0]
    limit = RateLimit(2.0, lambda: now[0])
    assert [limit.take("ada") for _ in range(int(2 * BURST_SECONDS))] == [0.0] * int(2 * BURST_SECONDS)
    assert limit.take("ada") == limit.take("ada") == 0.5  # a refused request takes nothing
    assert limit.take("eve") == 0.0
    now[0] += 0.5
    assert [limit.take("ada"), limit.take("ada")] == [0.0, 0.5]
    now[0] += 1000.0
    assert sum(limit.take("ada") == 0.0 for _ in range(100)) == int(2 * BURST_SECONDS)


def test_no_rate_is_no_limit_and_a_low_one_lets_one_through() -> None:
    free, slow = RateLimit(0.0, lambda: 0.0), RateLimit(0.01, lambda: 0.0)
    assert [free.take("ada") for _ in range(1000)] == [0.0] * 1000
    assert [slow.take("ada"), slow.take("ada")] == [0.0, pytest.approx(100.0)]


def test_it_remembers_a_bounded_number_of_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limits, "MAX_CALLERS", 3)
    limit = RateLimit(0.01, lambda: 0.0)
    assert [limit.take(str(caller)) for caller in range(100)] == [0.0] * 100
    assert limit.take("99") > 0.0
