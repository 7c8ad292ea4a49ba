"""What is known of click prediction on logs without building anything."""

from __future__ import annotations

from trainers.description import WorkloadDescription

DESCRIPTIONS: tuple[WorkloadDescription, ...] = ()
