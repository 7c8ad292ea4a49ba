"""The API on a database of years: what a request costs, how fast clients are answered, and whether probes still are.

    python -m tests.benchmarks.service.api_load --databases sqlite,postgresql
    python -m tests.benchmarks.service.api_load --jobs 5 --trials 200 --measurements 10 --seconds 3
    python -m tests.benchmarks.service.api_load --keep /var/tmp/api-load --fill-only  # once; then without --fill-only

Fills a database with 50 jobs of 2,000 trials of 50 measurements, unless told otherwise, and starts the API as a process
of its own. Then, on each database:

- each kind of request, one after the other: milliseconds, and processor milliseconds of the API, of PostgreSQL's
  processes and of the client;
- single jobs and trials: so many clients that each ask again as soon as they are answered, and 16 that together send
  100 requests a second, whose times count from when each was due;
- 64 streams of events, of all jobs and of one each, while events are stored: how late they are told, and the shares of
  a processor that API and database take;
- the longest page of jobs, many times at once, while `/readyz` and `/healthz` are asked over and over.

`others` are the processors that were busy with something else: times of a machine where they are not near 0 say little.

The ratios: `page_200_over_50`, the processor time of lists whose pages are four times as long (4: linear, with nothing
fixed), `answered_over_asked` of the listings at once, and `memory_last_over_first`: what the process has in memory
after another series of single requests, over what it had before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path

from tests.benchmarks.api.asking import Asked, Client, Paths, Series, closed_loop, one_after_the_other, open_loop
from tests.benchmarks.api.filling import Sizes, job_ids_of
from tests.benchmarks.api.machine import Meter
from tests.benchmarks.api.process import served_database, serving
from tests.benchmarks.api.streams import follow
from tests.benchmarks.report import Cell, print_table, report

LONGEST_PAGE = 200
PROBES = ("/readyz", "/healthz")
PROBE_PAUSE_SECONDS = 0.2
OPEN_CLIENTS = 16
P50, P99 = 50, 99
COST_COLUMNS = ("ms", "API ms", "database ms", "clients ms", "others", "bytes")
STREAM_COLUMNS = ("events", "told", "p50 ms", "p99 ms", "API %", "database %", "others")
LOOP_COLUMNS = (
    *("database", "loop", "clients", "answers/s", "p50 ms", "p99 ms"),
    *("API ms", "database ms", "clients ms", "others", "failures"),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one kind of request."""

    milliseconds: float
    """The median."""
    api_milliseconds: float
    """Time of the API's processors per request; so are the two below, of theirs."""
    database_milliseconds: float
    client_milliseconds: float
    other_processors: float
    """Busy with something else meanwhile."""
    num_bytes: int


def kinds_of(job_ids: Sequence[str], sizes: Sizes) -> dict[str, Paths]:
    """The kinds of request, by name; each request for another job or trial."""

    def job(number: int) -> str:
        return f"/v1/jobs/{job_ids[number % len(job_ids)]}"

    def trial(number: int) -> str:
        return f"{job(number)}/trials/{number * 7 % sizes.trials}"

    return {
        "health": lambda _: "/healthz",
        "readiness": lambda _: "/readyz",
        "trial": trial,
        "measurements": lambda number: f"{trial(number)}/measurements",
        "job": job,
        "best so far": lambda number: f"{job(number)}/plots/best-so-far",
        "learning curves": lambda number: f"{job(number)}/plots/learning-curves",
        "page of a job": lambda number: f"/jobs/{job_ids[number % len(job_ids)]}",
        "page of jobs": lambda _: "/",
        "50 trials": lambda number: f"{job(number)}/trials?page_size=50",
        f"{LONGEST_PAGE} trials": lambda number: f"{job(number)}/trials?page_size={LONGEST_PAGE}",
        "50 jobs": lambda _: "/v1/jobs?page_size=50",
        f"{LONGEST_PAGE} jobs": lambda _: f"/v1/jobs?page_size={LONGEST_PAGE}",
    }


def single_of(kinds: dict[str, Paths]) -> Paths:
    """Trials and jobs in turn."""
    return lambda number: kinds["job" if number % 2 else "trial"](number // 2)


def cost_of(meter: Meter, paths: Paths, *, requests: int) -> Cost:
    """Raises: RuntimeError: one was not answered with 200."""
    one_after_the_other(meter.api.address, paths, requests=3)  # what the first of a kind imports and builds
    before = meter.read()
    series = one_after_the_other(meter.api.address, paths, requests=requests)
    spent = meter.read().since(before)
    if series.failures:
        raise RuntimeError(f"{paths(0)} was answered with {Counter(answer.status for answer in series.answers)}")
    num_bytes = round(statistics.mean(answer.num_bytes for answer in series.answers))
    return Cost(
        series.milliseconds(P50),
        1000 * spent.api / requests,
        1000 * spent.database / requests,
        1000 * spent.clients / requests,
        spent.other_processors,
        num_bytes,
    )


def loops(meter: Meter, paths: Paths, *, clients: Sequence[int], offered: float, seconds: float) -> list[list[Cell]]:
    """Rows for `LOOP_COLUMNS`."""
    rows: list[list[Cell]] = []

    def row(kind: str, num_clients: int, ask: Callable[[], Series]) -> None:
        before = meter.read()
        series = ask()
        spent = meter.read().since(before)
        times = series.milliseconds(P50), series.milliseconds(P99)
        each = [1000 * own / len(series.answers) for own in (spent.api, spent.database, spent.clients)]
        rows.append([kind, num_clients, series.per_second, *times, *each, spent.other_processors, series.failures])

    address = meter.api.address
    for number in clients:
        row("closed", number, partial(closed_loop, address, paths, clients=number, seconds=seconds))
    offer = partial(open_loop, address, paths, clients=OPEN_CLIENTS, per_second=offered, seconds=seconds)
    row(f"{offered:g}/s", OPEN_CLIENTS, offer)
    return rows


def streams(
    meter: Meter, job_ids: Sequence[str], *, number: int, per_second: float, seconds: float
) -> list[list[Cell]]:
    """Rows for `STREAM_COLUMNS`: all streams of all jobs, and each stream of a job of its own."""
    running = list(job_ids)[: max(1, len(job_ids) // 3)]  # those of the jobs that have not ended
    rows: list[list[Cell]] = []
    for what, paths in (
        ("of all jobs", ["/v1/events"] * number),
        ("of a job each", [f"/v1/jobs/{running[index % len(running)]}/events?after=0" for index in range(number)]),
    ):
        before = meter.read()
        heard = follow(meter.api.address, meter.database.url, paths, running, per_second=per_second, seconds=seconds)
        spent = meter.read().since(before)
        lags = statistics.quantiles(heard.lags, n=100)
        share = [100 * own / spent.wall for own in (spent.api, spent.database)]
        rows.append(
            [f"{number} {what}", heard.num_told, len(heard.lags), 1000 * lags[P50 - 1], 1000 * lags[P99 - 1], *share]
        )
        rows[-1].append(spent.other_processors)
    return rows


def crowd(address: str, path: str, *, clients: int) -> tuple[list[Asked], dict[str, list[Asked]]]:
    """Listings at once, and the probes meanwhile."""
    probes: dict[str, list[Asked]] = {probe: [] for probe in PROBES}
    over = threading.Event()

    def keep_probing(probe: str) -> None:
        while not over.is_set():
            probes[probe].append(ask_once(address, probe))
            over.wait(PROBE_PAUSE_SECONDS)

    probers = [threading.Thread(target=keep_probing, args=(probe,)) for probe in PROBES]
    with ThreadPoolExecutor(clients) as pool:
        together = [pool.submit(ask_once, address, path) for _ in range(clients)]
        for prober in probers:
            prober.start()
        answers = [future.result() for future in together]
    over.set()
    for prober in probers:
        prober.join()
    return answers, probes


def ask_once(address: str, path: str) -> Asked:
    """On a connection of its own."""
    client = Client(address)
    answer = client.ask(path)
    client.close()
    return answer


@contextmanager
def _directory(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="api-load-") as directory:
        yield Path(directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--databases", default="sqlite,postgresql", help="databases to use (default: both)")
    parser.add_argument("--jobs", type=int, default=50, help="stored (default: 50)")
    parser.add_argument("--trials", type=int, default=2000, help="trials of each job (default: 2000)")
    parser.add_argument("--measurements", type=int, default=50, help="measurements of each trial (default: 50)")
    parser.add_argument("--running", type=int, default=20, help="jobs that run (default: 20)")
    parser.add_argument("--objectives", type=int, default=1, help="objectives of each job, up to 4 (default: 1)")
    parser.add_argument(
        "--requests", type=int, default=30, help="requests of each kind, one after the other (default: 30)"
    )
    parser.add_argument("--clients", default="1,16,64", help="so many at once (default: 1,16,64)")
    parser.add_argument("--offered", type=float, default=100.0, help="requests a second of 16 clients (default: 100)")
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds of each series of requests (default: 20)")
    parser.add_argument("--concurrent", type=int, default=40, help="listings at once; 0: none (default: 40)")
    parser.add_argument(
        "--streams", type=int, default=64, help="streams of events, read at once; 0: none (default: 64)"
    )
    parser.add_argument("--events", type=float, default=20.0, help="a second that they tell of (default: 20)")
    parser.add_argument("--keep", type=Path, help="keep the databases in this directory, and take those that are there")
    parser.add_argument("--fill-only", action="store_true", help="fill the databases to be kept, and end")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    sizes = Sizes(options.jobs, options.trials, options.measurements, options.running, options.objectives)

    rows: list[list[Cell]] = []
    figures: dict[str, object] = {
        "jobs": sizes.jobs,
        "trials": sizes.jobs * sizes.trials,
        "measurements": sizes.jobs * sizes.trials * sizes.measurements,
        "objectives": sizes.objectives,
        "concurrent": options.concurrent,
    }
    ratios: dict[str, float] = {}
    for kind in options.databases.split(","):
        with (
            _directory(options.keep) as directory,
            served_database(kind, directory, keeps=options.keep is not None) as served,
        ):
            job_ids = job_ids_of(served.url, sizes)
            kinds = kinds_of(job_ids, sizes)
            if options.fill_only:
                continue
            with serving(served.url, directory) as api:
                meter = Meter(api, served)
                costs = {name: cost_of(meter, paths, requests=options.requests) for name, paths in kinds.items()}
                print_table((kind, *COST_COLUMNS), [(name, *astuple(cost)) for name, cost in costs.items()])
                clients = [int(text) for text in options.clients.split(",")]
                series = loops(
                    meter, single_of(kinds), clients=clients, offered=options.offered, seconds=options.seconds
                )
                first_bytes = api.resident_bytes()
                again = closed_loop(api.address, single_of(kinds), clients=max(clients), seconds=options.seconds)
                last_bytes = api.resident_bytes()
                if options.streams:
                    streamed = streams(
                        meter, job_ids, number=options.streams, per_second=options.events, seconds=options.seconds
                    )
                    print_table((f"{kind}: streams", *STREAM_COLUMNS), streamed)
                    figures[f"{kind}_streams"] = streamed
                if options.concurrent:
                    answers, probes = crowd(
                        api.address, f"/v1/jobs?page_size={LONGEST_PAGE}", clients=options.concurrent
                    )
                    listed = [answer.seconds for answer in answers]
                    statuses = Counter(answer.status for answer in answers)
                    longest_probe = {name: max(answer.seconds for answer in asked) for name, asked in probes.items()}
                    failed_probes = sum(answer.status != 200 for asked in probes.values() for answer in asked)
                    print_table(
                        (f"{kind}: listings at once", "median s", "longest s", *PROBES, "failed probes"),
                        [
                            (
                                f"{statuses[200]} of {len(answers)} answered",
                                statistics.median(listed),
                                max(listed),
                                *longest_probe.values(),
                                failed_probes,
                            )
                        ],
                    )
                    figures[f"{kind}_statuses"] = {str(status): number for status, number in sorted(statuses.items())}
                    figures[f"{kind}_seconds_together"] = sorted(listed)
                    figures[f"{kind}_longest_probe_seconds"] = longest_probe
                    figures[f"{kind}_failed_probes"] = failed_probes
                    ratios[f"{kind}_answered_over_asked"] = statuses[200] / len(answers)
        rows += [[kind, *cells] for cells in series]
        for name, cost in costs.items():
            figures[f"{kind}_{name.replace(' ', '_')}_milliseconds"] = cost.milliseconds
            figures[f"{kind}_{name.replace(' ', '_')}_processor_milliseconds"] = cost.api_milliseconds
            figures[f"{kind}_{name.replace(' ', '_')}_database_milliseconds"] = cost.database_milliseconds
        figures[f"{kind}_series"] = series
        figures[f"{kind}_resident_bytes"] = [first_bytes, last_bytes]
        figures[f"{kind}_requests_between"] = len(again.answers)
        ratios[f"{kind}_memory_last_over_first"] = last_bytes / first_bytes
        for what in ("jobs", "trials"):
            # Where there are fewer jobs than the longest page has, both lists are alike.
            longer, shorter = costs[f"{LONGEST_PAGE} {what}"], costs[f"50 {what}"]
            ratios[f"{kind}_{what}_page_200_over_50"] = longer.api_milliseconds / shorter.api_milliseconds
    report(
        "api_load",
        columns=LOOP_COLUMNS,
        rows=rows,
        figures=figures,
        ratios=ratios,
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
