"""What is known of architectures that `transformers` builds without building anything."""

from __future__ import annotations

from trainers.description import WorkloadDescription

DESCRIPTIONS: tuple[WorkloadDescription, ...] = ()
