"""Descriptions of the language models: on Python's standard library, and on a user's text."""

from __future__ import annotations

from trainers.workload.description import (
    ParameterGroup,
    ParameterRule,
    TokensPerExample,
    WorkloadDescription,
    WorkloadOption,
)
from trainers.workloads.options import SIZE, depth_option, layers_option, width_option

PARAMETER_GROUPS = (
    ParameterGroup(
        "embeddings of tokens and positions, and the output layer",
        {"preconditioner": "none"},
        unless="precondition_embeddings",
        any_of=(
            ParameterRule(module_types=("Embedding",), min_dims=2),
            ParameterRule(name_parts=("output",), min_dims=2),
        ),
    ),
    ParameterGroup("biases and weights of norms", {"weight_decay": 0.0}, any_of=(ParameterRule(max_dims=1),)),
)
"""The groups of `text-lm`, as nanoGPT makes them: all matrices decay, embeddings too. In any one step most rows of a
table's gradient are zero, and with a large vocabulary its preconditioner would cost most of the optimizer's time."""

CONTEXT_LENGTHS = {"tiny": 64, "small": 256, "gpt2-124m": 1024, "llama-124m": 1024}
"""Tokens that a model of each size sees at once."""

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
        options={
            "size": SIZE,
            "width": width_option("width of the residual stream, with more heads of the size's width"),
            "depth": depth_option("transformer blocks"),
        },
        tokens_per_example=TokensPerExample(
            size_option="size", of_sizes={size: CONTEXT_LENGTHS[size] for size in ("tiny", "small")}
        ),
    ),
    WorkloadDescription(
        name="text-lm",
        title="Your text (files or Parquet), GPT-like or Llama-like language model",
        implementation="trainers.workloads.language.text_lm:TextLM",
        extra="text",
        metrics={
            "train_loss": "minimize",
            "validation_loss": "minimize",
            "validation_bits_per_byte": "minimize",
            "validation_accuracy": "maximize",
        },
        default_objective="validation_loss",
        default_num_steps=400,
        default_evaluate_every=40,
        default_batch_size=32,
        options={
            "path": WorkloadOption(
                None,
                "a text file, a Parquet file, or a directory of them (*.txt, *.text, *.md, *.rst, *.parquet, *.pq); a "
                "text file is one document, and so is each row of a Parquet file",
                required=True,
                role="path",
            ),
            "file_pattern": WorkloadOption(
                None,
                "which files of a directory are read instead, as a glob, e.g. **/*.py; null: those named above",
                role="data",
            ),
            "text_column": WorkloadOption(
                None, "the column of Parquet files that holds the text; null: text", role="data"
            ),
            "validation_path": WorkloadOption(
                None, "as path, with the text for validation; null: a part is held out", role="path"
            ),
            "validation_share": WorkloadOption(
                None,
                "share of the documents held out for validation, in (0, 1), or of the bytes (the last ones) where path "
                "is one text file; null: 0.1",
                role="data",
            ),
            "validation_seed": WorkloadOption(
                None, "seed that decides which documents are held out; null: 0", role="data"
            ),
            "num_validation_sequences": WorkloadOption(
                256, "validation sequences evaluated at each measurement, spread over the text; null: all", role="data"
            ),
            "tokenizer": WorkloadOption(
                "byte", "byte, or the path of a Hugging Face tokenizer.json", role="path_or_word", words=("byte",)
            ),
            "cache_directory": WorkloadOption(
                None,
                "where tokenised text is kept; null: SHAMPOO_TUNER_CACHE, or the user's cache directory",
                role="cache",
            ),
            "architecture": WorkloadOption("gpt", "gpt or llama", choices=("gpt", "llama")),
            "size": WorkloadOption(
                "tiny",
                "size of the model: tiny, small, gpt2-124m (gpt) or llama-124m (llama)",
                choices=tuple(CONTEXT_LENGTHS),
            ),
            "num_blocks": layers_option("transformer blocks"),
            "num_heads": WorkloadOption(None, "attention heads; null: as the size has it"),
            "num_key_value_heads": WorkloadOption(None, "heads of keys and values (llama); null: as the size has it"),
            "width": WorkloadOption(None, "width of the residual stream; null: as the size has it"),
            "context_length": WorkloadOption(None, "tokens that the model sees at once; null: as the size has it"),
            "tie_embeddings": WorkloadOption(
                None, "whether the output layer is the embedding; null: as the size has it (only gpt2-124m)"
            ),
            "precondition_embeddings": WorkloadOption(
                False, "whether Shampoo preconditions embeddings and output layer, too, or steps them as Adam does"
            ),
        },
        parameter_groups=PARAMETER_GROUPS,
        tokens_per_example=TokensPerExample("context_length", size_option="size", of_sizes=CONTEXT_LENGTHS),
    ),
)
