"""A workload as a user would install it, which fails on request."""

from __future__ import annotations

from trainers.workload.description import WorkloadDescription, WorkloadOption

DESCRIPTION = WorkloadDescription(
    name="troubled-digits",
    title="Handwritten digits, with troubles",
    implementation="troubled_digits.workload:TroubledDigits",
    metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
    default_objective="validation_loss",
    default_num_steps=40,
    default_evaluate_every=10,
    default_batch_size=32,
    options={
        "trouble": WorkloadOption("none", "none, diverge, error, memory, full, kill, exit, leave, crash or words"),
        "trouble_step": WorkloadOption(15, "the step at which the last rank meets it"),
        "seconds_per_step": WorkloadOption(0.0, "how long each step sleeps"),
        "hurry_file": WorkloadOption("", "if set, steps sleep only until this file exists"),
        "slow_from_step": WorkloadOption(0, "the first step, counted from 0, that sleeps"),
        "slow_seed": WorkloadOption(-1, "if set, only trials with this seed sleep"),
        "steps_file": WorkloadOption("", "if set, the first rank counts there the steps that it has begun"),
        "once_directory": WorkloadOption("", "if set, each trouble comes only once: it leaves its name there"),
    },
)
