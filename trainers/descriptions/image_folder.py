"""What is known of images in a directory or in Parquet files without building anything."""

from __future__ import annotations

from trainers.description import WorkloadDescription

DESCRIPTIONS: tuple[WorkloadDescription, ...] = ()
