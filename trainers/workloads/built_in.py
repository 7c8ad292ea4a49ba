"""Descriptions of the built-in workloads, one file per family, as plain values: no torch."""

from __future__ import annotations

from collections.abc import Mapping

from trainers.workload.description import WorkloadDescription
from trainers.workloads.clicks import description as click_log
from trainers.workloads.digits import description as digits
from trainers.workloads.huggingface import description as huggingface
from trainers.workloads.images import description as image_folder
from trainers.workloads.language import stdlib_gpt_description, text_lm_description

BUILT_IN: Mapping[str, WorkloadDescription] = {
    description.name: description
    for family in (digits, stdlib_gpt_description, image_folder, text_lm_description, click_log, huggingface)
    for description in family.DESCRIPTIONS
}
