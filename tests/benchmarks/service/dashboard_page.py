"""The cost of a job's page: bytes, processor time of the server, and the patience of whoever looks.

    python -m tests.benchmarks.service.dashboard_page
    python -m tests.benchmarks.service.dashboard_page --sizes 40x20,200x20 --visits 2

Fills a database with jobs of 40 trials, of 2,000 with 20 measurements each and of 10,000 with 100, unless told
otherwise, and serves it twice: by the API, and by `optuna-dashboard`, which sees the same jobs. A visit is the page and
what it draws its charts from; scripts and styles, which browsers keep, do not count. Of each job:

- `cold`: the first visit to it, of a process that has answered for another job before;
- `warm`: further ones, which bring nothing that they could have kept;
- `kept`: further ones of a browser that keeps what it may, and asks whether it still holds;
- in Chromium, with an empty profile (`cold`) and with scripts and styles in its cache (`warm`): the first contentful
  paint, and the longest task of the main thread, by the clock and by the processor time that it takes.

Of the last job also a trial's page, and its comparison with a small one, in Chromium alone.

The ratios: `peer_bytes_over_ours` and `peer_cpu_over_ours`, of a warm visit to the largest job that both are asked for.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.store.migrate import migrate
from service.store.session import Database
from tests.benchmarks.api.process import serving
from tests.benchmarks.dashboard.filling import fill_job
from tests.benchmarks.dashboard.looking import Look, chromium, look_twice
from tests.benchmarks.dashboard.serving import Visit, mean_of, peer_on, study_path, visit
from tests.benchmarks.report import Cell, report

COLUMNS = ("page", "trials", "visit", "CPU ms", "kB sent", "kB whole", "paint ms", "longest task ms", "its CPU ms")
TRACE = ".scatterlayer .trace"


def row(name: str, size: str, kind: str, seen: Visit | None = None, looked: Look | None = None) -> list[Cell]:
    cost: list[Cell] = ["", "", ""]
    patience: list[Cell] = ["", "", ""]
    if seen is not None:
        cost = [1000 * seen.processor_seconds, seen.num_bytes / 1000, seen.whole_bytes / 1000]
    if looked is not None:
        patience = [
            looked.first_paint_milliseconds,
            looked.longest_task_milliseconds,
            looked.longest_task_processor_milliseconds,
        ]
    return [name, size, kind, *cost, *patience]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", default="40x20,2000x20,10000x100", help="sizes of jobs: trials x measurements of each"
    )
    parser.add_argument("--visits", type=int, default=10, help="visits of which the mean is told (default: 10)")
    parser.add_argument(
        "--peer-up-to", type=int, default=2000, help="trials of a job that optuna-dashboard is asked for"
    )
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    now = datetime.now(UTC) - timedelta(days=1)

    rows: list[list[Cell]] = []
    figures: dict[str, object] = {"visits": options.visits}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="dashboard-page-") as directory, chromium() as browser:
        url = f"sqlite:///{Path(directory) / 'page.sqlite3'}"
        with closing(Database(url)) as database:
            migrate(database)
            other = fill_job(database, num_trials=8, num_measurements=4, now=now)
            jobs = [
                (fill_job(database, num_trials=trials, num_measurements=measurements, now=now), trials, measurements)
                for trials, measurements in sizes
            ]
            with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql("ANALYZE")
        ours: dict[str, Visit] = {}
        with serving(url, Path(directory)) as api:
            visit(api, paths_of(other))
            for job_id, trials, measurements in jobs:
                size, paths = f"{trials}x{measurements}", paths_of(job_id)
                known: dict[str, str] = {}
                cold = visit(api, paths)
                ours[size] = mean_of(api, paths, visits=options.visits)
                visit(api, paths, known)
                kept = mean_of(api, paths, visits=options.visits, known=known)
                first, again = look_twice(browser, f"{api.address}/jobs/{job_id}", f"#learning-curves {TRACE}")
                rows += [
                    row("job", size, "cold", cold, first),
                    row("job", size, "warm", ours[size], again),
                    row("job", size, "kept", kept),
                ]
                for kind, seen in (("cold", cold), ("warm", ours[size]), ("kept", kept)):
                    figures[f"{size}_{kind}_processor_milliseconds"] = 1000 * seen.processor_seconds
                    figures[f"{size}_{kind}_bytes"] = [seen.num_bytes, seen.whole_bytes]
                figures |= patience_of(size, first, again)
            last, trials, measurements = jobs[-1]
            size = f"{trials}x{measurements}"
            others = {
                "trial": (f"/jobs/{last}/trials/0", "#curve"),
                "compare": (f"/compare?jobs={other}&jobs={last}", "#best-so-far"),
            }
            for name, (path, chart) in others.items():
                first, again = look_twice(browser, api.address + path, f"{chart} {TRACE}")
                rows += [row(name, size, "cold", None, first), row(name, size, "warm", None, again)]
                figures |= patience_of(f"{size}_{name}", first, again)
        with peer_on(url) as peer:
            visit(peer, [study_path(peer, other)])
            for job_id, trials, measurements in jobs:
                if trials > options.peer_up_to:
                    continue
                size, path = f"{trials}x{measurements}", study_path(peer, job_id)
                cold = visit(peer, [path])
                warm = mean_of(peer, [path], visits=options.visits)
                page = path.replace("/api/", "/dashboard/")
                first, again = look_twice(browser, peer.address + page, ".js-plotly-plot .plot-container")
                rows += [row("optuna", size, "cold", cold, first), row("optuna", size, "warm", warm, again)]
                for kind, seen in (("cold", cold), ("warm", warm)):
                    figures[f"{size}_peer_{kind}_processor_milliseconds"] = 1000 * seen.processor_seconds
                    figures[f"{size}_peer_{kind}_bytes"] = [seen.num_bytes, seen.whole_bytes]
                figures |= patience_of(f"{size}_peer", first, again)
                ratios["peer_bytes_over_ours"] = warm.num_bytes / ours[size].num_bytes
                ratios["peer_cpu_over_ours"] = warm.processor_seconds / max(0.001, ours[size].processor_seconds)
    report("dashboard_page", columns=COLUMNS, rows=rows, figures=figures, ratios=ratios, json_file=options.json)


def patience_of(name: str, first: Look, again: Look) -> dict[str, float]:
    """The figures of a page in Chromium."""
    return {
        f"{name}_{kind}_{figure}": value
        for kind, looked in (("cold", first), ("warm", again))
        for figure, value in asdict(looked).items()
    }


def paths_of(job_id: str) -> list[str]:
    """Paths that a browser asks for which opens the page of a job."""
    return [f"/jobs/{job_id}", f"/jobs/{job_id}/charts/best", f"/jobs/{job_id}/charts/curves"]


if __name__ == "__main__":
    main()
