"""The description of click prediction on a user's logs."""

from __future__ import annotations

from trainers.workload.description import ParameterGroup, ParameterRule, WorkloadDescription, WorkloadOption

PARAMETER_GROUPS = (
    ParameterGroup(
        "the tables of the categories",
        # A row has a gradient only in steps whose examples have its category: decay would wear rare ones away
        # in between, and a preconditioner over the rows of 26 tables costs more than all the rest and learns
        # nothing that Adam's squares do not know.
        {"weight_decay": 0.0, "preconditioner": "none"},
        any_of=(ParameterRule(module_types=("Embedding",)),),
    ),
    ParameterGroup("biases", {"weight_decay": 0.0}, any_of=(ParameterRule(max_dims=1),)),
)
"""Decay on the layers' matrices only, and the tables apart."""

DESCRIPTIONS = (
    WorkloadDescription(
        name="click-log",
        title="Your click log in Criteo's format, DLRM (embedding tables and two MLPs)",
        implementation="trainers.workloads.clicks.click_log:ClickPrediction",
        extra="clicks",
        metrics={
            "train_loss": "minimize",
            "validation_loss": "minimize",
            "validation_normalized_entropy": "minimize",
            "num_malformed_lines": "minimize",
        },
        default_objective="validation_loss",
        default_num_steps=400,
        default_evaluate_every=40,
        default_batch_size=256,
        options={
            "path": WorkloadOption(
                None,
                "a file, or a directory of files in the order of their names: lines of a label, 13 integers and 26 "
                "hexadecimal categories, separated by tabs (or *.gz of such), or Parquet with these 40 columns",
                required=True,
                role="path",
            ),
            "file_pattern": WorkloadOption(
                None, "which files of a directory are read, as a glob; null: all", role="data"
            ),
            "validation_path": WorkloadOption(
                None, "as path, with the examples for validation; null: the last of path", role="path"
            ),
            "validation_share": WorkloadOption(
                None, "share of the examples, the last ones, held out for validation, in (0, 1); null: 0.1", role="data"
            ),
            "num_validation_examples": WorkloadOption(
                65_536,
                "validation examples evaluated at each measurement, spread over their time; null: all",
                role="data",
            ),
            "max_malformed_lines": WorkloadOption(
                100, "lines of a log that may be malformed; they are passed over", role="reading"
            ),
            "cache_directory": WorkloadOption(
                None,
                "where parsed logs are kept; null: SHAMPOO_TUNER_CACHE, or the user's cache directory",
                role="cache",
            ),
            "size": WorkloadOption(
                "tiny", "size of the model: tiny, small or dlrm-kaggle", choices=("tiny", "small", "dlrm-kaggle")
            ),
            "num_buckets": WorkloadOption(
                None, "rows of each category's table, to which its values are hashed; null: as the size has it"
            ),
            "embedding_width": WorkloadOption(None, "width of an embedding; null: as the size has it"),
            "bottom_sizes": WorkloadOption(
                None, "units of each hidden layer that the counts go through; null: as the size has it"
            ),
            "top_sizes": WorkloadOption(
                None, "units of each hidden layer that the products go through; null: as the size has it"
            ),
        },
        parameter_groups=PARAMETER_GROUPS,
    ),
)
