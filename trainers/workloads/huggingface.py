"""The workload `huggingface`: any architecture that `transformers` builds, on three tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainers.workloads.huggingface_images import image_classification
from trainers.workloads.huggingface_text import CausalLM, SequenceClassification
from trainers.workloads.option_values import one_of, without_effect

_COMMON = (
    "architecture",
    "config",
    "model_path",
    "weights",
    "path",
    "validation_path",
    "precondition_embeddings",
    "label_smoothing",
    "max_validation_examples",
)
_TASKS: Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "causal-lm": (CausalLM, ("text_column", "cache_directory", "tokenizer", "context_length")),
    "sequence-classification": (SequenceClassification, ("text_column", "label_column", "tokenizer", "context_length")),
    "image-classification": (image_classification, ("image_size", "min_crop_area", "horizontal_flip", "num_workers")),
}


class HuggingFace:
    """Gives the workload of a task, from that task's options; the others must be None.

    Raises:
        ValueError: no such task, or an option that it does not have or refuses.
    """

    def __new__(cls, *, task: str, **options: Any) -> Any:
        workload, own = _TASKS[one_of("task", task, tuple(_TASKS))]
        for name, value in options.items():
            if name not in _COMMON and name not in own:
                without_effect(name, value, f"on task {task}")
        return workload(**{name: options[name] for name in (*_COMMON, *own)})
