"""The config of a trial, to be pasted into another training script."""

from __future__ import annotations

from service.evidence.formats.snippet import trial_snippet
from service.evidence.in_words.wording import number, optimizer_title
from service.evidence.recommend import pasteable
from service.evidence.recommended import PasteableConfig
from service.store.models import Job, Trial
from service.use_cases.submit import parameter_groups_of


def config_to_paste(job: Job, trial: Trial) -> tuple[PasteableConfig, str]:
    """The config of a trial in the form of a recommendation, and as Python."""
    found = pasteable(trial.stored_config, parameter_groups_of(job))
    title = optimizer_title(found.optimizer)
    header = [
        f"{title} for {found.workload}: the config of trial {trial.number} of {job.name!r}, {trial.state}",
        *(f"{each.metric} ({each.direction}): {number(trial.metrics.get(each.metric))}" for each in job.objectives),
    ]
    return found, trial_snippet(found, header=header)
