from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SECONDS
from trainers.config import InvalidConfig
from trainers.workloads.registry import UnknownWorkload, check_options, describe, descriptions, load


@pytest.mark.processes
def test_descriptions_are_read_without_importing_torch() -> None:
    program = """if True:
        import sys
        import trainers.config, trainers.workloads.registry
        trainers.workloads.registry.check_options(trainers.workloads.registry.describe("digits-mlp"), {"dropout": 0.5})
        heavy = {"torch", "numpy", "sklearn", "ray"} & sys.modules.keys()
        sys.exit(f"imported {heavy}" if heavy else 0)
    """
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.processes
def test_what_some_workloads_and_places_need_is_imported_for_them_alone() -> None:
    """In one process, whose start takes longer than all of this, from what imports least to what imports most."""
    program = """if True:
        import sys
        import trainers.loop, trainers.run
        from trainers.workloads.registry import load
        for name in ("digits-mlp", "digits-convnet", "digits-autoencoder", "stdlib-gpt"):
            load(name, {})
        of_others = {"sklearn", "scipy", "pandas", "transformers", "huggingface_hub", "pyarrow"} & sys.modules.keys()
        assert not of_others, of_others
        import service.scheduler.worker
        assert "pyarrow" not in sys.modules  # of stores
    """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    "name",
    # Those that need a path are tested with data of theirs.
    [name for name, found in descriptions().items() if not any(o.required for o in found.options.values())],
)
def test_a_built_in_workload_has_what_its_description_says(name: str) -> None:
    description = describe(name)
    workload = load(name, {})
    model = workload.build_model().eval()
    reported = workload.evaluate(model, rank=1, world_size=50, device="cpu")  # a small share tells the names
    assert {"train_loss", *reported} == set(description.metrics)
    assert description.default_objective in description.metrics


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownWorkload, match=r"'digits'.*known: .*digits-mlp") as caught:
        load("digits", {})
    assert caught.value.field == "workload"
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(
        InvalidConfig, match=r"layers.*known: depth, dropout, hidden_sizes, label_smoothing, width"
    ) as caught:
        check_options(describe("digits-mlp"), {"layers": 3})
    assert caught.value.field == "workload_options.layers"
    for name in ("image-folder", "huggingface"):
        with pytest.raises(InvalidConfig, match="num_workers: must be at most 256, got 1000000"):
            check_options(describe(name), {"path": "/images", "num_workers": 10**6})


def test_a_path_without_data_is_named_with_its_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"there is nothing at '.*corpus\.txt'") as caught:
        load("text-lm", {"path": str(tmp_path / "corpus.txt")})
    assert caught.value.field == "workload_options.path"
