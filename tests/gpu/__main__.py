"""Checks and measures on a machine with a GPU: `tests/gpu/run --help`; README.md beside this says more."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.gpu.results import Cell, Figure, Results
    from tests.gpu.runner import Task

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "gpu-site"
STAGE_MINUTES = 8.0
ALL_MINUTES = 25.0
MODELS = ("gpt2", "resnet50")
WRONG, LEFT_OUT = 1, 3
"""Exit statuses: something was wrong; nothing was, but something is still to be done."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Some figures and their file."""

    name: str
    tasks: Callable[[], list[Task]]


def main() -> int:
    # Without a stage: all of them.
    arguments = sys.argv[1:]
    has_stage = not arguments or not arguments[0].startswith("-") or arguments[0] in ("-h", "--help")
    options = _parser().parse_args(arguments if has_stage else ["all", *arguments])
    match options.stage:
        case "wheels":
            return _bring(options)
        case "table":
            return _print_table(options.out)
        case "install":
            return _install(options.directories, options.site)
    if options.wheels or options.site is not None:
        _enter(options)
    stages = _stages(options)
    deadline = time.monotonic() + 60 * options.all_minutes
    return max([_run(stage, options, deadline) for stage in stages], key=(0, LEFT_OUT, WRONG).index)


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="where the JSON files go")
    common.add_argument("--minutes", type=float, default=STAGE_MINUTES, help="of each stage (default: %(default)g)")
    common.add_argument(
        "--all-minutes", type=float, default=ALL_MINUTES, help="of all stages together (default: %(default)g)"
    )
    common.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    common.add_argument("--tiny", action="store_true", help="a few small figures: whether this script works at all")
    common.add_argument("--markdown", action="store_true", help="print tables to paste into a README")
    common.add_argument("--site", type=Path, help="directory that `install` has filled, to be imported from first")
    common.add_argument(
        "--wheels", type=Path, nargs="+", metavar="DIR", help="folders of `wheels`, installed into --site to begin with"
    )
    parser = argparse.ArgumentParser(prog="tests/gpu/run", description=__doc__)
    stages = parser.add_subparsers(dest="stage", required=True)
    stages.add_parser("correct", parents=[common], help="the optimizer's numbers on the device")
    stages.add_parser("service", parents=[common], help="a tuning job over HTTP")
    speed = stages.add_parser("speed", parents=[common], help="the time of a step beside fused AdamW's")
    speed.add_argument("model", choices=MODELS)
    stages.add_parser("all", parents=[common], help="these stages, one after the other, as with options alone")
    whole = stages.add_parser("table", help="one Markdown table of the JSON files of all stages")
    whole.add_argument("--out", type=Path, default=ROOT / "build" / "gpu", help="where the JSON files are")
    wheels = stages.add_parser("wheels", help="downloads what the machine with the GPU lacks; needs a network")
    wheels.add_argument("directory", type=Path, help="an empty one, for numbered folders")
    wheels.add_argument("--present", type=Path, help="what the machine has: its `pip freeze`, or names alone")
    wheels.add_argument("--python", default="3.12", help="the machine's (default: %(default)s)")
    wheels.add_argument("--glibc", default="2.39", help="the machine's, as `ldd --version` says (default: %(default)s)")
    wheels.add_argument("--mebibytes", type=int, default=60, help="of a folder at most (default: %(default)s)")
    install = stages.add_parser("install", help="installs such folders, without a network")
    install.add_argument("directories", type=Path, nargs="+", metavar="DIR")
    install.add_argument("--site", type=Path, default=SITE, help="where to (default: build/gpu-site)")
    return parser


def _bring(options: argparse.Namespace) -> int:
    from tests.gpu.wheel_folders.wheels import Machine, bring, read_present

    present = read_present(options.present) if options.present else {}
    machine = Machine(options.python, options.glibc, present)
    print("\n".join(bring(options.directory, machine, folder_bytes=options.mebibytes * 2**20)))
    for folder in sorted(options.directory.iterdir(), key=lambda path: int(path.name)):
        files = list(folder.iterdir())
        size = sum(file.stat().st_size for file in files)
        print(f"{folder}: {len(files)} files, {size / 2**20:.1f} MiB")
    return 0


def _print_table(directory: Path) -> int:
    from tests.gpu.table import table

    try:
        print(table(directory))
    except FileNotFoundError as error:
        print(error)
        return LEFT_OUT
    return 0


def _install(directories: Sequence[Path], site: Path) -> int:
    from tests.gpu.wheel_folders.installation import install

    incomplete = install(directories, site)
    for what in incomplete:
        print(f"not yet installed: {what}")
    return LEFT_OUT if incomplete else 0


def _enter(options: argparse.Namespace) -> None:
    """Starts this command anew, with what is installed in its site before anything else, here and in all processes."""
    site = str((options.site or SITE).absolute())
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if site in paths:
        return
    if options.wheels:
        _install(options.wheels, Path(site))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), site, *paths])
    os.execv(sys.executable, [sys.executable, "-m", "tests.gpu", *sys.argv[1:]])


def _stages(options: argparse.Namespace) -> list[Stage]:
    device, is_tiny = options.device, options.tiny

    def correct() -> list[Task]:
        from tests.gpu.correct import tasks

        return tasks(device, is_tiny=is_tiny)

    def service() -> list[Task]:
        from tests.gpu.service_job import tasks

        return tasks(device, is_tiny=is_tiny)

    def speed(model: str) -> list[Task]:
        from tests.gpu.speed import tasks

        return tasks(model, device, is_tiny=is_tiny)

    speeds = {model: Stage(f"speed-{model}", functools.partial(speed, model)) for model in MODELS}
    match options.stage:
        case "correct":
            return [Stage("correct", correct)]
        case "service":
            return [Stage("service", service)]
        case "speed":
            return [speeds[options.model]]
        case _:  # all
            return [Stage("correct", correct), Stage("service", service), *speeds.values()]


def _run(stage: Stage, options: argparse.Namespace, all_deadline: float) -> int:
    """Takes a stage's figures, prints and writes them; the exit status."""
    from tests.gpu.results import Results

    deadline = min(all_deadline, time.monotonic() + 60 * options.minutes)
    settings = {"device": options.device, "tiny": options.tiny, "minutes": options.minutes}
    results = Results(options.out / f"{stage.name}.json", stage.name, settings)
    try:
        import torch

        from tests.gpu.machine import environment
        from tests.gpu.runner import take

        tasks = stage.tasks()
    except ModuleNotFoundError as error:
        results.left_out["everything"] = f"needs the package {error.name}, which is not installed here"
        results.write()
        print(f"{stage.name}: needs the package {error.name}, which is not installed here (README.md: wheels)")
        return WRONG
    if options.device == "cuda" and not torch.cuda.is_available():
        results.left_out["everything"] = "there is no CUDA device here"
        results.write()
        print(f"{stage.name}: there is no CUDA device here; --device cpu --tiny tries this script without one")
        return WRONG
    results.write()
    take(tasks, results, deadline=deadline, environment=environment, tell=_tell)
    _print(results, options)
    if results.problems:
        return WRONG
    return LEFT_OUT if results.left_out else 0


def _tell(figure: Figure) -> None:
    what = "ok   " if figure.problem is None else "WRONG"
    value = figure.failure if figure.measured is None else figure.measured.summary
    print(f"{what} {figure.key}: {value} ({figure.seconds:.1f} s)", file=sys.stderr, flush=True)


def _print(results: Results, options: argparse.Namespace) -> None:
    from tests.benchmarks.report import print_table
    from tests.gpu.results import GROUP_COLUMNS, STEP_COLUMNS, StepTimes, group_rows, markdown, step_rows

    def show(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        if options.markdown:
            print(markdown(columns, rows), end="\n\n")
        else:
            print_table(columns, rows)

    print(f"\n{results.stage} on {results.environment.get('device')}: {results.path}\n")
    times = [figure.measured for figure in results.figures if isinstance(figure.measured, StepTimes)]
    if times:
        show(STEP_COLUMNS, step_rows(times))
    else:
        show(GROUP_COLUMNS, group_rows(results.figures))
    for name, problem in results.problems.items():
        print(f"WRONG {name}: {problem}")
    for name, why in results.left_out.items():
        print(f"left out: {name}: {why}")


if __name__ == "__main__":
    sys.exit(main())
