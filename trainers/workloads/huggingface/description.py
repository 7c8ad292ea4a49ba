"""The description of the workload on architectures that `transformers` builds."""

from __future__ import annotations

from trainers.workload.description import (
    ParameterGroup,
    ParameterRule,
    TokensPerExample,
    WorkloadDescription,
    WorkloadOption,
)
from trainers.workloads.options import MAX_READERS

PARAMETER_GROUPS = (
    ParameterGroup(
        "embeddings, and the output layer of a language model",
        {"preconditioner": "none"},
        unless="precondition_embeddings",
        any_of=(
            ParameterRule(module_types=("Embedding",), min_dims=2),
            ParameterRule(of_output_embeddings=True, min_dims=2),
        ),
    ),
    ParameterGroup("biases and weights of norms", {"weight_decay": 0.0}, any_of=(ParameterRule(max_dims=1),)),
)
"""The groups of `text-lm`, for the architectures of others."""

DESCRIPTIONS = (
    WorkloadDescription(
        name="huggingface",
        title="Any architecture of Hugging Face transformers: language model, image or text classifier",
        implementation="trainers.workloads.huggingface.huggingface:HuggingFace",
        extra="huggingface",
        metrics={"train_loss": "minimize", "validation_loss": "minimize", "validation_accuracy": "maximize"},
        default_objective="validation_loss",
        default_num_steps=400,
        default_evaluate_every=40,
        default_batch_size=32,
        options={
            "task": WorkloadOption(
                "causal-lm",
                "causal-lm, image-classification or sequence-classification",
                choices=("causal-lm", "image-classification", "sequence-classification"),
            ),
            "architecture": WorkloadOption(
                None,
                "as transformers calls it (model_type), e.g. gpt2, llama, bert, resnet or vit; null: that of "
                "model_path, or a small gpt2, vit or bert",
            ),
            "config": WorkloadOption(
                {},
                "fields of the architecture's config class instead of its defaults (or of those in model_path), e.g. "
                '{"num_hidden_layers": 4}',
            ),
            "model_path": WorkloadOption(
                None, "a local directory with config.json, and safetensors files for pretrained weights", role="path"
            ),
            "weights": WorkloadOption(
                "random", "random, or pretrained to read them from model_path", choices=("random", "pretrained")
            ),
            "path": WorkloadOption(
                None,
                "causal-lm: text as for text-lm; image-classification: images as for image-folder; "
                "sequence-classification: a CSV, TSV or Parquet file or a directory of them; null: the source of "
                "Python's standard library (language model; or from which package a piece of it is), or the digits",
                role="path",
            ),
            "validation_path": WorkloadOption(
                None, "of text: as path, for validation; null: a part of path is held out", role="path"
            ),
            "text_column": WorkloadOption(None, "of tables: the column with the text; null: text", role="data"),
            "label_column": WorkloadOption(None, "of tables: the column with the class; null: label", role="data"),
            "tokenizer": WorkloadOption(
                None,
                "of text: byte, or the path of a tokenizer.json; null: that in model_path, or else byte, "
                "or words where pieces of the standard library are classified",
                role="path_or_word",
                words=("byte",),
            ),
            "cache_directory": WorkloadOption(
                None,
                "of causal-lm: where tokenised text is kept; null: SHAMPOO_TUNER_CACHE, or the user's cache directory",
                role="cache",
            ),
            "context_length": WorkloadOption(
                None, "of text: tokens that the model sees at once; null: 64, or as many as it takes if that is fewer"
            ),
            "image_size": WorkloadOption(None, "of images: their side in pixels; null: as the config has it, or 32"),
            "min_crop_area": WorkloadOption(None, "of images of a path: as for image-folder; null: 0.08", role="data"),
            "horizontal_flip": WorkloadOption(
                None, "of images of a path: as for image-folder; null: true", role="data"
            ),
            "num_workers": WorkloadOption(
                None, "of images of a path: as for image-folder; null: 2", role="reading", maximum=MAX_READERS
            ),
            "lora_rank": WorkloadOption(
                None,
                "rank of low-rank adapters (library peft) that are trained in place of the weights, beside a "
                "classifier's head; null: all weights are trained",
            ),
            "lora_alpha": WorkloadOption(
                None, "with lora_rank: an adapter's output is multiplied by lora_alpha / lora_rank; null: by 1"
            ),
            "lora_targets": WorkloadOption(
                None,
                'with lora_rank: the layers that get an adapter, by the last part of their names, e.g. ["q_proj", '
                '"v_proj"]; null: all linear ones but the head',
            ),
            "precondition_embeddings": WorkloadOption(
                False, "whether Shampoo preconditions embeddings and a language model's output layer, too"
            ),
            "label_smoothing": WorkloadOption(0.0, "label smoothing of the training loss, in [0, 1)"),
            "max_validation_examples": WorkloadOption(
                None, "examples evaluated at each measurement, spread over what is held out; null: 512", role="data"
            ),
        },
        parameter_groups=PARAMETER_GROUPS,
        tokens_per_example=TokensPerExample("context_length"),
    ),
)
