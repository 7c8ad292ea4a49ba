"""The section on what mattered, as plain values. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from service.evidence.in_words.insight_words import (
    NONE_STANDS_OUT,
    basis_words,
    early_late_words,
    importance_words,
    move_words,
    not_computed_words,
    objective_words,
    prices_words,
    range_words,
    side_words,
    state_words,
    step_words,
    too_few_words,
    trend_words,
)
from service.evidence.insights import MIN_TRIALS, ParameterInsight, SideInsights
from service.evidence.prices import CheaperSetting
from service.store.models import JobInsightsRow

MAX_OTHERS = 3
"""Parameters not told from chance that stand beside those that are; more are folded away."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A parameter's line."""

    label: str
    name: str
    condition: str
    """The trials that had it; empty: all."""
    percent: float
    """The length of its bar."""
    low: float
    high: float
    """The interval, in percent."""
    importance: str
    trend: str
    good: str
    is_beyond_chance: bool


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A cheaper setting's line, in words."""

    parameter: str
    move: str
    """The change from one value to another."""
    objective: str
    step: str
    state: str
    basis: str


@dataclass(frozen=True, slots=True)
class SidePanel:
    """A side's part of the section."""

    side: str
    title: str
    counted: str
    too_few: str
    """The reason why nothing is said; empty: something is."""
    bars: list[Bar]
    early_late: str
    """A sentence on how well early values tell the last ones; empty: there is no telling."""
    cheaper_than: str
    """The values that the prices are compared with; empty: there are none."""
    prices: list[PriceLine]

    none_stands_out: str = NONE_STANDS_OUT
    """The sentence for a side of which no bar is told from chance."""

    @property
    def mattered(self) -> list[Bar]:
        """The bars that are told from chance."""
        return [bar for bar in self.bars if bar.is_beyond_chance]

    @property
    def others(self) -> list[Bar]:
        """The bars that are not told from chance."""
        return [bar for bar in self.bars if not bar.is_beyond_chance]

    @property
    def others_stay(self) -> bool:
        """True if they are not folded away: they are few."""
        return len(self.others) <= MAX_OTHERS


@dataclass(frozen=True, slots=True)
class InsightsSection:
    """The whole section."""

    panels: list[SidePanel]
    why_empty: str
    """A sentence that says why there is nothing to show; empty: there is something."""
    metric: str = ""
    """The objective; empty: nothing is shown."""
    computed_at: str = ""
    """The time at which what is shown was computed; empty: nothing is."""

    @property
    def shown(self) -> str:
        """The side that is shown first: the first that says something."""
        return next((panel.side for panel in self.panels if not panel.too_few), "")


def insights_section(stored: JobInsightsRow | None, titles: Mapping[str, str], *, num_ended: int) -> InsightsSection:
    """The section of a job.

    Args:
        stored: None: nothing yet.
        titles: of the sides.
        num_ended: trials of search and baselines that have ended by now.
    """
    if stored is None and num_ended >= MIN_TRIALS:
        return InsightsSection([], not_computed_words(num_ended))
    insights = None if stored is None else stored.insights
    panels = (
        []
        if insights is None
        else [_panel(side, titles, insights.metric) for side in insights.sides if side.num_trials]
    )
    if all(panel.too_few for panel in panels):
        most = max((side.num_trials for side in insights.sides), default=0) if insights else num_ended
        return InsightsSection([], too_few_words(most))
    if insights is None or stored is None:
        return InsightsSection(panels, "")
    return InsightsSection(panels, "", insights.metric, stored.computed_at.isoformat())


def _panel(side: SideInsights, titles: Mapping[str, str], metric: str) -> SidePanel:
    return SidePanel(
        side=side.side,
        title=titles.get(side.side, side.side),
        counted=side_words(side),
        too_few=too_few_words(side.num_trials) if side.has_few_trials else "",
        bars=[] if side.has_few_trials else [_bar(parameter) for parameter in side.parameters],
        early_late=early_late_words(side.early_late_correlation) if side.early_late_correlation else "",
        cheaper_than=prices_words(side),
        prices=[_price(setting, metric) for setting in side.prices],
    )


def _price(setting: CheaperSetting, metric: str) -> PriceLine:
    return PriceLine(
        parameter=setting.parameter,
        move=move_words(setting),
        objective=objective_words(setting),
        step=step_words(setting),
        state=state_words(setting),
        basis=basis_words(setting, metric),
    )


def _bar(parameter: ParameterInsight) -> Bar:
    known = parameter.importance
    return Bar(
        label=parameter.label,
        name=parameter.name,
        condition=parameter.condition,
        percent=100 * known.share if known else 0.0,
        low=100 * known.low if known else 0.0,
        high=100 * known.high if known else 0.0,
        importance=importance_words(known),
        trend=trend_words(parameter),
        good=range_words(parameter),
        is_beyond_chance=parameter.is_beyond_chance,
    )
