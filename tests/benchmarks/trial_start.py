"""How long the machine waits between two trials: warm rank groups against `TorchTrainer` inside Ray Tune.

    python -m tests.benchmarks.trial_start --trials 4

Both sides train the same trial (two gloo ranks, the digits, the same loop) in the same Ray cluster, one trial at a
time, in turns. Measured in the ranks: from the last measurement of a trial to the end of the next trial's first step.
The first trial of each turn starts everything anew and is not counted, on either side. `stock_over_ours`: medians.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.report import report

NUM_STEPS = 5
WORLD_SIZE = 2
ENTRY_POINTS = "[shampoo_tuner.workloads]\ntimed-digits = tests.benchmarks.timed_digits:DESCRIPTION\n"
REPOSITORY = Path(__file__).parents[2]

CONFIG: dict[str, Any] = {
    "workload": "timed-digits",
    "optimizer": {"name": "adamw", "arguments": {"lr": 1e-3}},
    "num_steps": NUM_STEPS,
    "evaluate_every": 1,
    "batch_size": 128,
}


def prepare_environment(directory: Path) -> None:
    """What Ray's processes must find: the workload, one thread per rank, and no more output than needed."""
    distribution = directory / "packages" / "timed_digits-1.0.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: timed-digits\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(ENTRY_POINTS)
    os.environ |= {
        "PYTHONPATH": f"{distribution.parent}{os.pathsep}{REPOSITORY}",
        "OMP_NUM_THREADS": "1",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        # Stock Train hears of its workers at this interval only; its default of 2 s would count against it.
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
    }


def gaps(times: list[list[float]]) -> list[float]:
    """Seconds from each trial's last measurement to the next one's first."""
    return [later[0] - earlier[-1] for earlier, later in pairwise(times)]


def run(
    trainable: Any, *, num_trials: int, directory: Path, evaluated_at: Callable[[dict[str, Any]], float]
) -> list[float]:
    """The gaps between trials that Tune runs one after the other."""
    from ray import tune

    times: dict[str, list[float]] = {}

    class Clock(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            times.setdefault(trial.trial_id, []).append(evaluated_at(result))

    tune.Tuner(
        trainable,
        param_space={"number": tune.grid_search(list(range(num_trials)))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1, reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(directory), verbose=0, callbacks=[Clock()]),
    ).fit()
    assert [len(of_trial) for of_trial in times.values()] == [NUM_STEPS] * num_trials, times
    return gaps(list(times.values()))


def warm_trainable(directory: Path) -> Any:
    """Our trainable, which keeps its ranks between trials."""
    from ray import tune

    from service.scheduler.rank_group import GroupSize
    from service.scheduler.trainable import TrialOrder, WarmTrainable, trial_resources

    size = GroupSize(WORLD_SIZE, 1.0, 0)

    class Ordered(WarmTrainable):
        """Turns the number of a trial into an order."""

        def setup(self, config: dict[str, Any]) -> None:
            super().setup(self._order(config))

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            return super().reset_config(self._order(new_config))

        @staticmethod
        def _order(config: dict[str, Any]) -> dict[str, Any]:
            checkpoints = Path(tempfile.mkdtemp(dir=directory))
            return TrialOrder(config["number"], CONFIG, str(checkpoints), size).to_tune()

    return tune.with_resources(Ordered, trial_resources(size))


def stock_trainable(directory: Path) -> Any:
    """What Ray documents: a Tune function that runs a `TorchTrainer`."""
    from ray import tune

    def trial(_config: dict[str, Any]) -> None:
        from ray.train import RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
        from ray.tune.integration.ray_train import TuneReportCallback

        TorchTrainer(
            _stock_rank,
            train_loop_config={"directory": str(directory)},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=WORLD_SIZE, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(
                name=f"train-{tune.get_context().get_trial_id()}",
                storage_path=str(directory),
                callbacks=[TuneReportCallback()],
            ),
        ).fit()

    return tune.with_resources(trial, {"cpu": 0.5})


def _stock_rank(config: dict[str, Any]) -> None:
    import ray.train
    import torch

    from trainers.config import TrialConfig
    from trainers.distributed import process_group_context
    from trainers.loop import train

    torch.set_num_threads(1)
    # Checkpoints as ours writes them.
    number = ray.train.get_context().get_experiment_name()
    context = process_group_context(checkpoint_directory=Path(config["directory"], f"checkpoints-{number}"))
    for measurement in train(TrialConfig.from_json(CONFIG), context):
        ray.train.report(dict(measurement.metrics))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4, help="gaps measured on each side (default: 4)")
    parser.add_argument(
        "--turns", type=int, default=2, help="turns of each side among which they are spread (default: 2)"
    )
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()

    directory = Path(tempfile.mkdtemp(prefix="trial-start-", dir="/tmp"))
    prepare_environment(directory)
    import ray

    ray.init(
        address="local",
        # More than the ranks need: the stock side also asks for a share for its Tune function.
        num_cpus=WORLD_SIZE + 2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _temp_dir=str(directory / "ray"),
    )
    ours: list[float] = []
    stock: list[float] = []
    per_turn = max(1, round(options.trials / options.turns))
    try:
        for turn in range(options.turns):
            ours += run(
                warm_trainable(directory),
                num_trials=per_turn + 1,
                directory=directory / f"ours-{turn}",
                evaluated_at=lambda result: result["report"].measurement.metrics["evaluated_at"],
            )
            stock += run(
                stock_trainable(directory),
                num_trials=per_turn + 1,
                directory=directory / f"stock-{turn}",
                evaluated_at=lambda result: result["evaluated_at"],
            )
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
    medians = {"ours": statistics.median(ours), "stock": statistics.median(stock)}
    report(
        "trial_start",
        columns=("between two trials", "gaps", "median s", "least s", "most s"),
        rows=[
            ("warm rank group", len(ours), medians["ours"], min(ours), max(ours)),
            ("TorchTrainer in Tune", len(stock), medians["stock"], min(stock), max(stock)),
        ],
        figures={"ours_seconds": ours, "stock_seconds": stock, "world_size": WORLD_SIZE},
        ratios={"stock_over_ours": medians["stock"] / medians["ours"]},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
