"""The option `size` of the built-in workloads."""

from __future__ import annotations

from trainers.workload.description import WorkloadOption

SIZE = WorkloadOption("tiny", "size of the model: tiny or small; steps and batch size have defaults for tiny")
