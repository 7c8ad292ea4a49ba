"""What is known of the language model on Python's standard library without building it."""

from __future__ import annotations

from trainers.workload.description import WorkloadDescription
from trainers.workloads.size_option import SIZE

DESCRIPTIONS = (
    WorkloadDescription(
        name="stdlib-gpt",
        title="Source of Python's own standard library (about 4 MB, differs between versions), byte-level GPT",
        implementation="trainers.workloads.language.stdlib_gpt:StdlibGPT",
        metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
        default_objective="validation_loss",
        default_num_steps=400,  # a fifth of an epoch: no sequence is seen twice
        default_evaluate_every=40,
        default_batch_size=32,
        options={"size": SIZE},
    ),
)
