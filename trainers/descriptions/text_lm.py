"""What is known of language models on text files without building anything."""

from __future__ import annotations

from trainers.description import WorkloadDescription

DESCRIPTIONS: tuple[WorkloadDescription, ...] = ()
