"""The workload `huggingface`: any architecture that `transformers` builds, on three tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainers.workloads.huggingface.adapters import adapters_of
from trainers.workloads.huggingface.architecture import Weights
from trainers.workloads.huggingface.images import image_classification
from trainers.workloads.huggingface.text import CausalLM, SequenceClassification
from trainers.workloads.options import one_of, without_effect

_TASKS: Mapping[str, tuple[Callable[..., Any], frozenset[str]]] = {
    "causal-lm": (CausalLM, frozenset({"text_column", "cache_directory", "tokenizer", "context_length"})),
    "sequence-classification": (
        SequenceClassification,
        frozenset({"text_column", "label_column", "tokenizer", "context_length"}),
    ),
    "image-classification": (
        image_classification,
        frozenset({"image_size", "min_crop_area", "horizontal_flip", "num_workers"}),
    ),
}
"""The workload of each task, and those of the options that not all tasks have."""


class HuggingFace:
    """Gives the workload of a task, from that task's options; those of others must be None.

    Raises:
        ValueError: no such task, or an option that it does not have or refuses.
    """

    def __new__(
        cls,
        *,
        task: str,
        architecture: str | None,
        config: Mapping[str, Any],
        model_path: str | None,
        weights: Weights,
        path: str | None,
        validation_path: str | None,
        text_column: str | None,
        label_column: str | None,
        tokenizer: str | None,
        cache_directory: str | None,
        context_length: int | None,
        image_size: int | None,
        min_crop_area: float | None,
        horizontal_flip: bool | None,
        num_workers: int | None,
        lora_rank: int | None,
        lora_alpha: float | None,
        lora_targets: Sequence[str] | None,
        precondition_embeddings: bool,
        label_smoothing: float,
        max_validation_examples: int | None,
    ) -> Any:
        workload, own = _TASKS[one_of("task", task, tuple(_TASKS))]
        of_some_tasks = {
            "text_column": text_column,
            "label_column": label_column,
            "tokenizer": tokenizer,
            "cache_directory": cache_directory,
            "context_length": context_length,
            "image_size": image_size,
            "min_crop_area": min_crop_area,
            "horizontal_flip": horizontal_flip,
            "num_workers": num_workers,
        }
        for name, value in of_some_tasks.items():
            if name not in own:
                without_effect(name, value, f"on task {task}")
        return workload(
            architecture=architecture,
            config=config,
            model_path=model_path,
            weights=weights,
            path=path,
            validation_path=validation_path,
            adapters=adapters_of(lora_rank=lora_rank, lora_alpha=lora_alpha, lora_targets=lora_targets),
            precondition_embeddings=precondition_embeddings,
            label_smoothing=label_smoothing,
            max_validation_examples=max_validation_examples,
            **{name: value for name, value in of_some_tasks.items() if name in own},
        )
