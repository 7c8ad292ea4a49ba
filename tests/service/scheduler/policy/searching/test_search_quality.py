"""The simulation of search policies: its clock, its regret, its command line, and the curves that come with it."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from search_spaces import Float, Scalar, SearchSpace
from service.domain import Direction, FailureReason, Phase, TrialState
from service.scheduler.policy.protocol import Ask, Decision, Resume, Start, TrialHistory, Wait
from service.scheduler.policy.searching.curve_model import LENGTH
from tests.benchmarks.search import search_quality
from tests.benchmarks.search.curve_families import FAMILIES, NUM_UNITS, Family, task
from tests.benchmarks.search.curve_tables import DATA, read_table, table_objective
from tests.benchmarks.search.paired import Earlier, Paired
from tests.benchmarks.search.parameter_lengths import Observed, learnt
from tests.benchmarks.search.search_policies import POLICIES
from tests.benchmarks.search.search_simulation import Problem, simulate

SPACE = SearchSpace("adamw", (Float("lr", 0.001, 1.0),))
NUM = 10


def curve(config: Mapping[str, Scalar]) -> list[float]:
    """Ends at lr; above 0.9 it diverges after 3 units."""
    lr = config["lr"]
    assert isinstance(lr, float)
    values = [lr * unit / NUM for unit in range(1, NUM + 1)]
    return values if lr <= 0.9 else [*values[:3], math.nan]


PROBLEM = Problem.sampled(curve, SPACE, Direction.MAXIMIZE, num_configs=500)


class Script:
    """Starts the given learning rates in order; pauses each trial at unit 4 and resumes it when nothing is left."""

    def __init__(self, rates: Sequence[float], *, pauses: bool = False) -> None:
        self._rates, self._pauses = list(rates), pauses
        self.started: list[float] = []
        self.paused: list[int] = []
        self.told: list[tuple[int, TrialState, tuple[float, ...], FailureReason | None]] = []
        self.reported: list[tuple[int, int]] = []

    def ask(self) -> Ask:
        if self._rates:
            self.started.append(self._rates.pop(0))
            until = 4 if self._pauses else None
            return Start(len(self.started) - 1, Phase.SEARCH, {"lr": self.started[-1]}, until)
        if self.paused:
            number = self.paused.pop(0)
            return Resume(number, Phase.SEARCH, {"lr": self.started[number]})
        return Wait()

    def report(self, number: int, step: int, value: float, *, seconds: float = 0.0) -> Decision:
        self.reported.append((number, step))
        assert value == pytest.approx(self.started[number] * step / NUM)
        if self._pauses and step == 4:
            self.paused.append(number)
            return Decision.PAUSE
        return Decision.CONTINUE

    def tell(
        self, number: int, state: TrialState, values: Sequence[float] = (), reason: FailureReason | None = None
    ) -> None:
        self.told.append((number, state, tuple(values), reason))

    def close(self) -> None:
        raise NotImplementedError

    def restore(self, history: Sequence[TrialHistory]) -> None:
        raise NotImplementedError


def test_the_sample_gives_best_and_median_and_the_share_that_diverges() -> None:
    assert PROBLEM.best == pytest.approx(0.9, abs=0.01)
    assert PROBLEM.median == pytest.approx(0.4, abs=0.05)  # of all, the diverged ones below
    assert PROBLEM.diverged_share == pytest.approx(0.1, abs=0.04)


def test_a_training_is_measured_as_often_as_asked_and_where_it_pauses() -> None:
    script = Script([0.5], pauses=True)
    simulate(script, PROBLEM, num_workers=1, budgets=[1], measure_every=3)
    assert [step for _, step in script.reported] == [1, 3, 4, 6, 9, 10]


def test_an_objective_without_spread_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot normalise"):
        Problem.sampled(lambda _: [1.0, 1.0], SPACE, Direction.MINIMIZE, num_configs=10)


def test_the_incumbent_is_the_best_trial_that_ended_in_time() -> None:
    regrets = simulate(Script([0.5, 0.7, 0.6]), PROBLEM, num_workers=1, budgets=[0.9, 1, 2, 3])
    assert regrets == [1.0, *(pytest.approx(PROBLEM.regret(value)) for value in (0.5, 0.7, 0.7))]


def test_several_workers_share_the_budget() -> None:
    one = simulate(Script([0.5, 0.7, 0.6, 0.8]), PROBLEM, num_workers=1, budgets=[1, 4])
    four = simulate(Script([0.5, 0.7, 0.6, 0.8]), PROBLEM, num_workers=4, budgets=[1, 4])
    assert one[1] == four[1] == PROBLEM.regret(0.8)
    assert four[0] == 1.0  # four workers have done a quarter of each trial


def test_a_paused_trial_goes_on_where_it_was() -> None:
    policy = Script([0.5, 0.7], pauses=True)
    simulate(policy, PROBLEM, num_workers=1, budgets=[2])
    first, second = [(0, step) for step in range(1, 11)], [(1, step) for step in range(1, 11)]
    assert policy.reported == [*first[:4], *second[:4], *first[4:], *second[4:]]
    assert [state for _, state, _, _ in policy.told] == [TrialState.COMPLETED] * 2


def test_a_diverged_trial_fails_where_its_curve_ends() -> None:
    policy = Script([0.95, 0.5])
    regrets = simulate(policy, PROBLEM, num_workers=1, budgets=[1.4])
    assert policy.told[0] == (0, TrialState.FAILED, (), FailureReason.DIVERGED)
    assert policy.reported[:3] == [(0, 1), (0, 2), (0, 3)]
    assert regrets == [PROBLEM.regret(0.5)]


@pytest.mark.parametrize(("name", "pause"), [("auto", 2), ("auto-40", 4)])
def test_a_name_says_where_auto_pauses_first(name: str, pause: int) -> None:
    asked = POLICIES[name](PROBLEM, 0).ask()
    assert isinstance(asked, Start)
    assert asked.until == pause


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_draws_the_same_task_again(family: Family) -> None:
    one, other = task(family, 3), task(family, 3)
    config = one.space.defaults()
    assert one.objective(config) == other.objective(config)
    problem = Problem.sampled(one.objective, one.space, Direction.MAXIMIZE, num_configs=200)
    assert problem.num_units == NUM_UNITS[family]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name.split(".")[0] for path in DATA.glob("*.curves.json.gz")))
def test_a_table_gives_the_real_curve_of_each_of_its_rows(name: str) -> None:
    table = read_table(name)
    assert len(table.rows) > 200
    assert any(row.diverged for row in table.rows) == (name == "digits-convnet")
    objective = table_objective(name)
    for row in table.rows[:50]:
        table.space.check(row.parameters)
        found = objective(row.parameters)
        assert found[: len(row.curve)] == list(row.curve)
        assert row.diverged == (len(found) != table.num_units or not math.isfinite(found[-1]))


@pytest.mark.slow
def test_the_command_line_prints_each_policy_and_a_line_of_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = tmp_path / "space.json"
    space.write_text(json.dumps(SPACE.to_json()))
    command = f"--objective {__name__}:curve --space {space} --direction max --budgets 2,4 --seeds 2 --workers 1,2"
    search_quality.main([*command.split(), "--policies", "auto,random,asha", "--sample", "200"])
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["benchmark"] == "search_quality"
    assert {"auto_1_workers", "asha_2_workers"} <= result["figures"].keys()
    assert len(result["figures"]["auto_1_workers"]["mean_regret"]) == 2


@pytest.mark.slow
def test_families_are_searched_one_by_one_and_compared_together_and_with_an_earlier_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--families", "plain,loss", "--budgets", "2,4", "--seeds", "2", "--first-seed", "7", "--sample", "100"]
    file = tmp_path / "earlier.json"
    search_quality.main([*command, "--policies", "random,asha", "--json", str(file)])
    printed = capsys.readouterr().out
    earlier = json.loads(file.read_text())["figures"]
    assert re.search(r"all random over asha +1 +\d", printed)
    assert earlier["seeds"] == [7, 8]
    drawn = task("loss", 8)
    problem = Problem.sampled(drawn.objective, drawn.space, Direction.MAXIMIZE, num_configs=100)
    alone = simulate(POLICIES["random"](problem, 8), problem, num_workers=1, budgets=[2, 4])
    assert earlier["loss_random_1_workers"]["regrets"][1] == alone
    parts = [earlier[f"{family}_random_1_workers"]["regrets"] for family in ("plain", "loss")]
    assert earlier["all_random_1_workers"]["regrets"] == [*parts[0], *parts[1]]
    search_quality.main([*command, "--policies", "asha", "--against", str(file)])
    assert re.search(r"all asha over earlier +1 +1\.00 ±0\.00 +0\.000 ±0\.000 +1\.00 ±0\.00 ", capsys.readouterr().out)


def test_regrets_in_pairs_have_a_ratio_whose_error_leaves_out_what_both_share() -> None:
    shared = np.array([0.1, 0.4, 0.2, 0.9])
    found = Paired.of(0.5 * shared, shared)
    assert [found.ratio, found.ratio_error] == pytest.approx([0.5, 0.0])
    other_regrets = 0.5 * shared + np.array([0.02, -0.02, 0.02, -0.02])
    other = Paired.of(other_regrets, shared)
    assert [other.ratio, other.difference] == pytest.approx([0.5, -0.2])
    assert other.difference_error == pytest.approx(np.std(other_regrets - shared, ddof=1) / 2)
    assert other.ratio_error == pytest.approx(np.std([0.02, -0.02, 0.02, -0.02], ddof=1) / 2 / shared.mean())
    with pytest.raises(ValueError, match="no pairs"):
        Paired.of(shared, shared[:2])


def test_an_earlier_run_with_other_seeds_or_without_a_policy_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "earlier.json"
    own = {"auto_1_workers": {"regrets": [[0.5, 0.25]]}}
    file.write_text(json.dumps({"figures": {"seeds": [3], "budgets": [5.0, 10.0], **own}}))
    found = Earlier.read(file, [3], [5.0, 10.0], ["auto_1_workers"])
    assert found.regrets["auto_1_workers"].tolist() == [[0.5, 0.25]]
    with pytest.raises(ValueError, match="other seeds or budgets"):
        Earlier.read(file, [4], [5.0, 10.0], ["auto_1_workers"])
    with pytest.raises(ValueError, match="no searches of asha_1_workers"):
        Earlier.read(file, [3], [5.0, 10.0], ["asha_1_workers"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--families plain,tea", "unknown family 'tea'"),
        ("--families plain --direction min", "--families have their own"),
        ("--objective a:b --direction min", "--objective needs --space"),
        ("--families plain --objective a:b", "not allowed with"),
    ],
)
def test_families_and_an_objective_exclude_each_other(
    options: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        search_quality.parse(options.split())
    assert reason in capsys.readouterr().err


def test_an_unknown_objective_or_policy_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="must be module:function"):
        search_quality.load_objective("math")
    with pytest.raises(SystemExit):
        search_quality.parse(["--objective", "a:b", "--space", "x", "--direction", "max", "--policies", "tea"])
    assert "unknown policy 'tea'" in capsys.readouterr().err


def test_length_scales_learnt_from_tables_tell_a_parameter_that_matters_from_one_that_does_not() -> None:
    space = SearchSpace("adamw", (Float("lr", 1e-4, 0.1, scale="log"), Float("weight_decay", 1e-4, 0.1, scale="log")))
    rng = random.Random(0)
    parameters = [space.sample(rng) for _ in range(40)]
    final = np.exp([math.sin(2 * math.log10(float(str(config["lr"])))) for config in parameters])
    lengths = learnt([Observed("waves", "waves", space, parameters, 2 * final, final)] * 2, num_rounds=1)
    usual = LENGTH * 3  # decades
    assert lengths["lr"][0] < usual < lengths["weight_decay"][0]
