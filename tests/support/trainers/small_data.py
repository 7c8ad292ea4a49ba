"""A small data set for each workload that reads a user's own data, and options with which it trains in a second."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from tests.support.trainers.images.data import write_split_tree
from trainers.workloads.clicks.generator import write_click_log

GPT2: dict[str, Any] = {
    "architecture": "gpt2",
    "config": {
        "num_hidden_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
    },
    "max_validation_examples": 48,
}
"""Options of `huggingface`, which without a path reads the source of Python's standard library."""


def write_images(root: Path) -> dict[str, Any]:
    """Writes JPEG and PNG files of two classes; options of `image-folder`, in whose place others may be given."""
    path = write_split_tree(root / "images")
    return {"path": str(path), "architecture": "vit-nano", "image_size": 16, "patch_size": 8}


def write_text(root: Path) -> dict[str, Any]:
    """Writes a text of 100 kB; options of `text-lm`."""
    path = root / "argparse.txt"
    path.write_bytes((Path(sysconfig.get_paths()["stdlib"]) / "argparse.py").read_bytes())
    return {"path": str(path), "cache_directory": str(root / "cache"), "num_validation_sequences": 64}


def write_clicks(root: Path, *, num_examples: int = 2000) -> dict[str, Any]:
    """Writes a click log; options of `click-log`."""
    path = root / "clicks.tsv"
    write_click_log(path, num_examples, seed=0)
    return {"path": str(path), "cache_directory": str(root / "cache")}


def of_recipes(root: Path) -> dict[str, dict[str, Any]]:
    """Options that name a small data set, written below `root`, by workload of the recipes."""
    return {
        "image-folder": {"path": write_images(root)["path"]},
        "text-lm": write_text(root),
        "click-log": write_clicks(root, num_examples=200),
    }
