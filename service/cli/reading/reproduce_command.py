"""The command that trains a recommendation again, here, and says whether it falls in the band: `reproduce`."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.asking import DEFAULT_URL, Token, Url, client_at, say, say_json_content
from service.cli.writing import Overwrite, check_free
from service.errors import ServiceError

if TYPE_CHECKING:
    from service.api.schemas.recommendations import RecommendationRead
    from trainers.config import Json

app = typer.Typer()


@app.command()
def reproduce(
    recommendation: Annotated[str, typer.Argument(help="Its id, rec_..., or that of its job, job_...")],
    num_seeds: Annotated[int, typer.Option("--seeds", min=1, help="Number of the confirming seeds to train with.")] = 1,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the weights of the first seed here, as safetensors.")
    ] = None,
    overwrite: Overwrite = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Trains a recommendation again on this machine, with the seeds, ranks and threads of its evidence, and says
    whether the results fall in the expected band, or equal those of the evidence.

    Exit status 0: they do; 1: they do not, or the training failed.
    """
    from pydantic import TypeAdapter

    from service.evidence.reproduction import Repeated, Reproduction, outcome_lines, repeats_of, reproduction

    if weights is not None:
        check_free(weights, overwrites=overwrite)
    with client_at(url, token) as client:
        is_job = recommendation.startswith("job_")
        found = client.recommendation(recommendation) if is_job else client.one_recommendation(recommendation)
    if found.torchrun is None:
        raise ServiceError(
            f"{recommendation} cannot be trained again: its trial began from another one's checkpoint, or an older "
            "version found it, which did not keep the number of ranks"
        )
    best = found.evidence.best.stored_config
    check_trainable(best.workload, best.workload_options)
    for sentence in _differences(found):
        say(f"not as it was: {sentence}", err=True)
    done: list[Repeated] = []
    for repeat in repeats_of(found.evidence)[:num_seeds]:
        say(f"training with seed {repeat.seed} ...", err=True)
        wanted = weights if not done else None
        done.append(Repeated(repeat, trained(found.torchrun, repeat.seed, found.evidence.metric, weights=wanted)))
    outcome = reproduction(found.evidence, done)
    if as_json:
        say_json_content(TypeAdapter(Reproduction).dump_python(outcome, mode="json"))
    else:
        for line in outcome_lines(outcome):
            say(line)
    if not outcome.is_reproduced:
        raise typer.Exit(1)


def check_trainable(workload: str, options: Mapping[str, Json]) -> None:
    """Checks that a workload and the data at the paths among its options are to be had here, and that a class of one's
    own can be built: the ranks that lack any of it end with a page of torchrun's.

    Raises:
        ServiceError: they are not; names each option and its path.
    """
    from trainers.config import InvalidConfig
    from trainers.workloads.describe import DescriptionKilled, DescriptionTooSlow, ask
    from trainers.workloads.paths import problems_of_paths
    from trainers.workloads.registry import BUILT_IN

    try:
        description = BUILT_IN.get(workload) or ask(workload)
    except InvalidConfig as error:
        raise ServiceError(
            f"{workload} cannot be trained here: {error.message}; run the command in its directory, or have that in "
            "PYTHONPATH"
        ) from error
    problems = [f"option {name}: {problem}" for name, problem in problems_of_paths(description, options)]
    if problems:
        raise ServiceError(
            f"{workload} cannot be trained here: {'; '.join(problems)}. To train it with data that lie elsewhere, add "
            "`--set workload_options.OPTION=PATH` to the line of `shampoo-tuner recommend --format torchrun`"
        )
    if workload in BUILT_IN:
        return
    try:
        ask(workload, built_with=options)
    except (DescriptionKilled, DescriptionTooSlow):  # with its data it takes long or much: the ranks may have more
        return
    except InvalidConfig as error:
        raise ServiceError(
            f"{workload} cannot be trained here: {error.message}. A relative path in it begins in the directory that "
            "the command is run in: run it in the one where the job's worker ran, or have the class begin at its own "
            "file (`Path(__file__).parent`)"
        ) from error


def _differences(found: RecommendationRead) -> list[str]:
    """Differences between this installation and that where the config was found."""
    from service.evidence.reproduction import other_versions
    from trainers.installation.distribution import DISTRIBUTION, commit, version

    here = {"python": sys.version.partition(" ")[0], DISTRIBUTION: version(), **_installed()}
    own_commit = commit()
    if own_commit is not None:
        here[f"{DISTRIBUTION}'s commit"] = own_commit
    told = [] if found.environment is None else other_versions(found.environment.versions, here)
    if found.environment is None:
        told.append("the versions are not known: it is older than these are kept")
    if found.code_sha256 is not None:
        told.append(f"the code {found.code_sha256[:12]} came with the job, and must be on PYTHONPATH")
    return told


def _installed() -> dict[str, str]:
    from importlib import metadata

    return {one.name: one.version for one in metadata.distributions()}


def trained(command: str, seed: int, metric: str, *, weights: Path | None = None) -> float | None:
    """The metric that the command ends with, trained with a seed; None: it did not come to its end.

    What the ranks say on standard error is shown.

    Args:
        weights: the file that they are written to.
    """
    program, *arguments = shlex.split(command)
    assert program == "torchrun"
    with tempfile.TemporaryDirectory(prefix="torchrun-") as logs:  # one that torchrun makes itself, it leaves
        started = [sys.executable, "-m", "torch.distributed.run", "--log-dir", logs, *arguments]
        started += ["--set", f"seed={seed}"]
        started += [] if weights is None else ["--weights", str(weights)]
        ended = subprocess.run(started, stdout=subprocess.PIPE, text=True, check=False)
    printed = ended.stdout.splitlines()
    if ended.returncode or not printed:
        return None
    value = json.loads(printed[-1])["metrics"].get(metric)
    return None if value is None else float(value)
