"""Descriptions of the built-in workloads, one file per family, as plain values: no torch."""

from __future__ import annotations

from collections.abc import Mapping

from trainers.description import WorkloadDescription
from trainers.descriptions import click_log, digits, huggingface, image_folder, stdlib_gpt, text_lm

BUILT_IN: Mapping[str, WorkloadDescription] = {
    description.name: description
    for family in (digits, stdlib_gpt, image_folder, text_lm, click_log, huggingface)
    for description in family.DESCRIPTIONS
}
