"""AlgoPerf's performance profiles and score of any set of runs of the external-tuning protocol.

    python -m trainers.external_tuning.run_studies runs.jsonl --submissions shampoo adamw kl
    python -m tests.benchmarks.training.algoperf_score runs.jsonl
    python -m tests.benchmarks.training.algoperf_score mine.jsonl theirs.jsonl --unit seconds

Reads files of runs, which may come from several machines where time is counted in steps. Each line is one trial:
`{"submission": ..., "workload": ..., "study": 0, "trial": 0, "steps_to_goal": 45, "seconds_to_goal": 1.2}`, null for a
goal that was missed. The table has the time of each submission on each workload (the median over studies of the best
trial, "missed" where fewer than three of five reached the goal), then its score. `trainers.external_tuning.scoring`
says how it is computed.

    score.S                     area under the profile of submission S, in [0, 1]
    time_over_least.S.W         its time on workload W over the least of all submissions
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from tests.benchmarks.report import Cell, print_table, report
from trainers.external_tuning.protocol import NUM_STUDIES
from trainers.external_tuning.run_studies import read_runs
from trainers.external_tuning.scoring import MAX_RATIO, profile, ratios, score, times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, help="files of runs")
    parser.add_argument("--unit", choices=("steps", "seconds"), default="steps", help="unit of time (default: steps)")
    parser.add_argument("--studies", type=int, default=NUM_STUDIES, help="studies of each workload (default: 5)")
    parser.add_argument("--max-ratio", type=float, default=MAX_RATIO, help="where profiles end (default: 4)")
    parser.add_argument("--json", type=Path, help="write the result to this file too")
    options = parser.parse_args()
    runs = [run for path in options.runs for run in read_runs(path)]
    found = times(runs, options.unit, num_studies=options.studies)
    over_least = ratios(found)
    scores = {name: score(of_name, max_ratio=options.max_ratio) for name, of_name in over_least.items()}
    profiles = {name: profile(of_name) for name, of_name in over_least.items()}
    workloads = sorted({run.workload for run in runs})
    print(f"share of workloads (profile) on which the time is at most so many times the least, in {options.unit}:\n")
    rises = sorted({ratio for steps in profiles.values() for ratio, _ in steps if ratio <= options.max_ratio})
    print_table(
        ["submission", *(f"{ratio:.3g}" for ratio in rises)],
        [
            [name, *(f"{max((share for rise, share in steps if rise <= at), default=0.0):.2f}" for at in rises)]
            for name, steps in profiles.items()
        ],
    )
    rows: list[list[Cell]] = [
        [name, *("missed" if math.isinf(of_name[w]) else of_name[w] for w in workloads), scores[name]]
        for name, of_name in found.items()
    ]
    report(
        "algoperf_score",
        columns=["submission", *workloads, "score"],
        rows=rows,
        figures={
            "unit": options.unit,
            "num_runs": len(runs),
            "profiles": profiles,
            "times": {
                name: {w: time if math.isfinite(time) else None for w, time in of_name.items()}
                for name, of_name in found.items()
            },
        },
        ratios={
            **{f"score.{name}": value for name, value in scores.items()},
            **{
                f"time_over_least.{name}.{workload}": ratio
                for name, of_name in over_least.items()
                for workload, ratio in of_name.items()
                if math.isfinite(ratio)
            },
        },
        json_file=options.json,
    )


if __name__ == "__main__":
    main()
