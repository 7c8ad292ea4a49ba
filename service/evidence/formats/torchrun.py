"""The command that trains a recommended config again, as its trial was trained."""

from __future__ import annotations

import json
import shlex

from service.evidence.recommended import RecommendedConfig


def torchrun_line(recommendation: RecommendedConfig) -> str | None:
    """A line for a shell, which gives the measurements of the trial that found the config: the same model, data, seed,
    ranks and threads. With `--set seed=N` it is trained with another seed.

    None: the recommendation is older than its ranks are kept, or its trial began from another one's checkpoint.
    """
    ranks, best = recommendation.ranks, recommendation.evidence.best
    if ranks is None or best.lineage:
        return None
    config = json.dumps(best.config, separators=(",", ":"))
    device = "" if ranks.device == "cpu" else f" --device {ranks.device}"
    threads = "" if ranks.num_threads == 1 else f" --threads {ranks.num_threads}"
    return f"torchrun --nproc-per-node {ranks.number} -m trainers.run {shlex.quote(config)}{device}{threads}"
