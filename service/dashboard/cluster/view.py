"""The cluster in words. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from service.evidence.in_words.wording import counted
from service.use_cases.cluster import ClusterState, Others

NAMED_VERSIONS = ("shampoo-tuner", "torch")
"""Packages whose versions stand beside a job's device; the others are in each trial's environment."""


def count(number: int, thing: str) -> str:
    """A number with what it counts: `1 job`, `1,200 jobs`, `no jobs`."""
    return counted(number, thing) if number else f"no {thing}s"


def headline(state: ClusterState) -> str:
    """The cluster in a sentence or two."""
    num_running = len(state.running) + state.running_others.num_jobs
    waits = f"{count(state.num_queued, 'job')} {'waits' if state.num_queued == 1 else 'wait'}"
    if not state.num_workers:
        return f"No worker is alive; {waits}." if state.num_queued else "No worker is alive, and no job waits."
    alive = f"{count(state.num_workers, 'worker')} {'is' if state.num_workers == 1 else 'are'} alive"
    if not num_running and not state.num_queued:
        return f"{alive}, and there is nothing to do."
    runs = f"{count(num_running, 'job')} {'runs' if num_running == 1 else 'run'}"
    return f"{alive}; {runs}, {waits}."


def others_words(others: Others) -> str:
    """Words on running jobs of other projects."""
    training = f"{count(others.num_trials, 'trial')} in training"
    ranks = f", {count(others.num_ranks, 'rank')}" if others.num_ranks else ""
    return f"{count(others.num_jobs, 'job')} of other projects: {training}{ranks}"


def versions_words(versions: Mapping[str, str]) -> str:
    """The versions that matter most, for a line: `shampoo-tuner 0.1.0, torch 2.13.0`."""
    return ", ".join(f"{name} {versions[name]}" for name in NAMED_VERSIONS if name in versions)
