"""All that leans on private parts of Optuna, as they are in Optuna 5.0, and the reason for each.

A new release of Optuna is checked here first.
"""

from __future__ import annotations

from optuna import Study
from optuna.study._frozen import FrozenStudy as FrozenStudy  # what `BaseStorage.get_all_studies` has to return
from optuna.trial import FrozenTrial

METRIC_NAMES = "study:metric_names"
"""The system attribute in which Optuna keeps what `Study.set_metric_names` sets; a storage is asked for it."""

_LIAR_ATTRIBUTE = "tpe:relative_params:0"
"""The system attribute in which `TPESampler` leaves a suggestion for its liar."""


def id_in_storage(trial: FrozenTrial) -> int:
    """The number by which a storage finds a trial: `BaseStorage.get_trial` takes it, and only `number`, the position in
    the study, is public."""
    return trial._trial_id


def forget_suggestion_for_liar(study: Study, trial: FrozenTrial) -> None:
    """Takes back what `TPESampler` drew for a trial, so that its liar counts the values that the trial has.

    The sampler writes it past the public methods, which set attributes of the user's alone.
    """
    study._storage.set_trial_system_attr(id_in_storage(trial), _LIAR_ATTRIBUTE, "")
