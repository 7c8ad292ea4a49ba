"""The rules in the order in which they are checked. Each looks for itself, whatever the others found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trainers.workload_check import (
    data_rules,
    description_rules,
    evaluation_rules,
    model_rules,
    optional_rules,
    trial_rules,
)
from trainers.workload_check.subject import Subject


@dataclass(frozen=True, slots=True)
class Rule:
    """One promise of a workload."""

    name: str
    check: Callable[[Subject], str]
    """Gives what it found in order; raises `Broken`, `Doubtful` or `NotChecked`, or what the workload raises."""
    is_foundation: bool = False
    """True if a workload that dies or hangs here would do so in every later rule."""


RULES: Sequence[Rule] = (
    Rule("description", description_rules.check_description, is_foundation=True),
    Rule("construction", description_rules.check_construction, is_foundation=True),
    Rule("model", model_rules.check_model),
    Rule("batches", data_rules.check_batches),
    Rule("data order", data_rules.check_order),
    Rule("sharding", data_rules.check_sharding),
    Rule("start step", data_rules.check_start_step),
    Rule("epoch", data_rules.check_epoch),
    Rule("processes", trial_rules.check_processes),
    Rule("loss", model_rules.check_loss),
    Rule("gradient", model_rules.check_gradient),
    Rule("mean loss", model_rules.check_mean_loss),
    Rule("learning", model_rules.check_learning),
    Rule("metrics", evaluation_rules.check_metrics),
    Rule("shared evaluation", evaluation_rules.check_shares),
    Rule("repeated evaluation", evaluation_rules.check_repetition),
    Rule("untouched model", evaluation_rules.check_model_is_untouched),
    Rule("trials", trial_rules.check_trials),
    Rule("resume", trial_rules.check_resume),
    Rule("blocks", optional_rules.check_blocks),
    Rule("parameter groups", optional_rules.check_parameter_groups),
    Rule("tokens", optional_rules.check_tokens),
    Rule("counts", optional_rules.check_counts),
)
