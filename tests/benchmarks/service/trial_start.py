"""How long the machine waits between two trials: warm rank groups, `TorchTrainer` inside Ray Tune, and torchrun.

    python -m tests.benchmarks.service.trial_start --trials 4
    python -m tests.benchmarks.service.trial_start --quick

All train the same trial (two gloo ranks, the digits, the same loop), one at a time, in turns; the first two in the same
Ray cluster, the third with a torchrun of its own for each trial. Measured in the ranks: from the last measurement of a
trial to the end of the next trial's first step. The first trial of each turn starts everything anew and is not counted.
`stock_over_ours`, `torchrun_over_ours`: medians. `--quick`: one turn, with one gap of the others.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.benchmarks.report import report

NUM_STEPS = 5
WORLD_SIZE = 2
REPOSITORY = Path(__file__).parents[3]

CONFIG: dict[str, Any] = {
    "workload": "timed-digits",
    "optimizer": {"name": "adamw", "arguments": {"lr": 1e-3}},
    "num_steps": NUM_STEPS,
    "evaluate_every": 1,
    "batch_size": 128,
}


def install_workloads(descriptions: Mapping[str, str], directory: Path) -> str:
    """Makes a package that registers workloads ({name: where its description is}); the folder to put on the path."""
    distribution = directory / "packages" / "of_a_benchmark-1.0.dist-info"
    distribution.mkdir(parents=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-benchmark\nVersion: 1.0\n")
    lines = [f"{name} = {where}\n" for name, where in descriptions.items()]
    (distribution / "entry_points.txt").write_text(f"[shampoo_tuner.workloads]\n{''.join(lines)}")
    sys.path.insert(0, str(distribution.parent))
    return str(distribution.parent)


def prepare_environment(directory: Path) -> None:
    """Sets up Ray's processes: the workload, one thread per rank, and no more output than needed."""
    packages = install_workloads({"timed-digits": "tests.benchmarks.training.timed_digits:DESCRIPTION"}, directory)
    os.environ |= {
        "PYTHONPATH": f"{packages}{os.pathsep}{REPOSITORY}",
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

    from service.scheduler.cluster.group_size import GroupSize
    from service.scheduler.tune.messages import TrialOrder
    from service.scheduler.tune.trainable import WarmTrainable, trial_resources
    from trainers.config import TrialConfig

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
            return TrialOrder(config["number"], TrialConfig.from_json(CONFIG), str(checkpoints), size).to_tune()

    return tune.with_resources(Ordered, trial_resources(size))


def stock_trainable(directory: Path) -> Any:
    """The way that Ray documents: a Tune function that runs a `TorchTrainer`."""
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
                callbacks=[TuneReportCallback()],  # type: ignore[no-untyped-call,list-item]  # as Ray leaves them
            ),
        ).fit()

    return tune.with_resources(trial, {"cpu": 0.5})


def _stock_rank(config: dict[str, Any]) -> None:
    import ray.train
    import torch

    from trainers.config import TrialConfig
    from trainers.loop import train
    from trainers.ranks.context import process_group_context

    torch.set_num_threads(1)
    # Checkpoints as ours writes them.
    number = ray.train.get_context().get_experiment_name()
    context = process_group_context(checkpoint_directory=Path(config["directory"], f"checkpoints-{number}"))
    for measurement in train(TrialConfig.from_json(CONFIG), context):
        ray.train.report(dict(measurement.metrics))


def torchrun(num_trials: int, directory: Path) -> list[float]:
    """The gaps between trials that are each a torchrun, started when the one before it has ended."""
    config = directory / "config.json"
    config.write_text(json.dumps(CONFIG))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD_SIZE)]
    command += ["-m", "trainers.run", str(config), "--threads", "1", "--checkpoint-directory"]
    times: list[list[float]] = []
    for _ in range(num_trials):
        checkpoints = tempfile.mkdtemp(dir=directory)
        done = subprocess.run([*command, checkpoints], stdout=subprocess.PIPE, text=True, check=True)
        given = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        times.append([measurement["metrics"]["evaluated_at"] for measurement in given])
    assert [len(of_trial) for of_trial in times] == [NUM_STEPS] * num_trials, times
    return gaps(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=4, help="gaps measured on each side (default: 4)")
    parser.add_argument(
        "--turns", type=int, default=2, help="turns of each side among which they are spread (default: 2)"
    )
    parser.add_argument("--quick", action="store_true", help="one gap of each but ours, which has eight")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    turns = 1 if options.quick else options.turns
    per_turn = 1 if options.quick else max(1, round(options.trials / options.turns))

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
    spawned: list[float] = []
    try:
        for turn in range(turns):
            ours += run(
                warm_trainable(directory),
                num_trials=8 * per_turn + 1,  # cheap, and as spread as anything so short
                directory=directory / f"ours-{turn}",
                evaluated_at=lambda result: result["report"].measurement.metrics["evaluated_at"],
            )
            stock += run(
                stock_trainable(directory),
                num_trials=per_turn + 1,
                directory=directory / f"stock-{turn}",
                evaluated_at=lambda result: result["evaluated_at"],
            )
            spawned += torchrun(per_turn + 1, directory)
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
    sides = {"ours": ours, "stock": stock, "torchrun": spawned}
    medians = {side: statistics.median(found) for side, found in sides.items()}
    titles = {"ours": "warm rank group", "stock": "TorchTrainer in Tune", "torchrun": "torchrun for each"}
    report(
        "trial_start",
        columns=("between two trials", "gaps", "median s", "least s", "most s"),
        rows=[(titles[side], len(found), medians[side], min(found), max(found)) for side, found in sides.items()],
        figures={**{f"{side}_seconds": found for side, found in sides.items()}, "world_size": WORLD_SIZE},
        ratios={f"{side}_over_ours": medians[side] / medians["ours"] for side in ("stock", "torchrun")},
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
