"""`module:Class` and entry points: described from the class, in this process or another, and loaded."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import psutil
import pytest

from tests.support.trainers.broken_workloads import Sound
from tests.support.waiting import wait_until
from trainers.config import InvalidConfig, Json, OptimizerConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.description import WorkloadDescription, WorkloadOption
from trainers.workload.user_workload import description_of, import_class, is_reference, options_of
from trainers.workloads.describe import DescriptionKilled, ask, ask_for_installed, environment_of_children
from trainers.workloads.messages import answer_from_line
from trainers.workloads.registry import UnknownWorkload, describe, load

MINE = """
from __future__ import annotations
from typing import Annotated, TYPE_CHECKING
from tests.support.trainers.broken_workloads import Sound

if TYPE_CHECKING:
    from pathlib import Path

class Mine(Sound):
    title = "Mine"
    def __init__(self, path: str, *, scale: Annotated[float, "of the targets"] = 2.0, sizes=(3, 4), note=None) -> None:
        assert sizes == (3, 4)  # not the list that JSON makes of it
        if scale < 0:
            raise ValueError(f"scale must not be negative, got {scale}")
        super().__init__(scale=scale)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, with the module `mine` in it."""
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for module in ("mine", "described", "misdescribed"):
        sys.modules.pop(module, None)


def install(directory: Path, **entry_points: str) -> None:
    """A distribution in `directory` with these entry points."""
    metadata = directory / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[shampoo_tuner.workloads]", *lines]))


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_class_is_found_by_any_name_that_python_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workload_in_words.py").write_text("class Größe: ...\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("Größe", unicodedata.normalize("NFD", "Größe")):  # as some keyboards and file systems spell it
        assert is_reference(f"workload_in_words:{name}")
        assert import_class(f"workload_in_words:{name}").__name__ == "Größe"


@pytest.mark.parametrize("name", ["mine:Mine", "a.b_c.d1:E2", "_a:_B", "größen.ä:Größe"])
def test_references_are_recognised(name: str) -> None:
    assert is_reference(name)


@pytest.mark.parametrize(
    "name",
    [
        "digits-mlp",
        "a:",
        ":B",
        "a:b:c",
        "a b:C",
        "a..b:C",
        ".a:B",
        "1a:B",
        "a:B.c",
        "a:B²",
        "a:B\n",
        "a:\u200bB",
        "a-b:C",
        "a" * 200 + ":B",
    ],
)
def test_other_names_are_no_references(name: str) -> None:
    assert not is_reference(name)


@pytest.mark.processes
@pytest.mark.usefixtures("mine")
def test_a_class_is_described_by_its_attributes_and_its_constructor() -> None:
    for description in (describe("mine:Mine"), ask("mine:Mine")):
        assert (description.name, description.implementation) == ("mine:Mine", "mine:Mine")
        assert description.title == "Mine"
        assert description.metrics == {"train_loss": "minimize", "validation_loss": "minimize"}
        assert (description.default_objective, description.default_num_steps) == ("validation_loss", 10)
        assert (description.default_evaluate_every, description.default_batch_size) == (5, 12)
        assert description.options == {
            "path": WorkloadOption(None, "str", required=True, kinds=("text",)),
            "scale": WorkloadOption(2.0, "of the targets (float)", kinds=("number",)),
            "sizes": WorkloadOption([3, 4], ""),
            "note": WorkloadOption(None, ""),
        }


@pytest.mark.parametrize(
    ("annotation", "default", "taken", "refused"),
    [
        (int, 64, [64, 0], ["big", 6.5, True, None, [64]]),
        (float, 1, [1, 1.5], ["1.5", False]),
        (Annotated[str, "a path"], inspect.Parameter.empty, ["data"], [3]),
        (bool, False, [True], [1, "yes"]),
        (int | None, None, [3, None], ["none"]),
        (int, None, [3, None], ["none"]),  # as is often written
        (list[int], [1], [[1], "what it makes of it, nobody knows"], []),
        (int | list[int], 3, [3, "3"], []),
        (int, "auto", [3, "3"], []),
        (inspect.Parameter.empty, 64, ["big"], []),
    ],
)
def test_an_option_takes_what_its_annotation_says(
    annotation: object, default: object, taken: list[Json], refused: list[Json]
) -> None:
    class Annotating:
        __signature__ = inspect.Signature(
            [inspect.Parameter("width", inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)]
        )

    option = options_of(Annotating)["width"]
    assert WorkloadOption.from_json(json.loads(json.dumps(dataclasses.asdict(option)))).kinds == option.kinds
    assert [value for value in [*taken, *refused] if not option.takes(value)] == refused


def test_a_process_reads_the_data_of_the_template_once() -> None:
    from trainers.workload.template import read_data  # here: scikit-learn takes a second, in every process of a run

    before = read_data.cache_info()
    trials = [load("trainers.workload.template:WorkloadTemplate", {"width": width}) for width in (8, 16, 8)]
    after = read_data.cache_info()
    assert {trial.num_train_examples for trial in trials} == {450}
    assert after.misses - before.misses <= 1
    assert after.hits - before.hits >= 2


@pytest.mark.usefixtures("mine")
def test_a_value_of_another_kind_is_refused_by_its_option() -> None:
    with pytest.raises(InvalidConfig, match=r"workload_options.scale: mine:Mine takes number, got 'big'"):
        load("mine:Mine", {"path": "x", "scale": "big"})


@pytest.mark.usefixtures("mine")
def test_a_class_is_built_with_its_own_defaults_and_trains() -> None:
    assert load("mine:Mine", {"path": "x"}).num_train_examples == 50
    with pytest.raises(
        InvalidConfig, match=r"workload_options: refused by mine:Mine: scale must not be negative, got -1"
    ):
        load("mine:Mine", {"path": "x", "scale": -1})
    with pytest.raises(InvalidConfig, match=r"workload_options.path: is required by mine:Mine"):
        load("mine:Mine", {})
    config = TrialConfig(
        workload="mine:Mine",
        workload_options={"path": "x"},
        optimizer=OptimizerConfig("adamw", {"lr": 1e-2}),
        num_steps=4,
        evaluate_every=2,
        batch_size=10,
    )
    assert [measurement.step for measurement in train(config, single_process_context())] == [2, 4]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"metrics": {}, "default_objective": "train_loss"}, None),
        ({"title": " "}, "title must be a text, got ' '"),
        (
            {"metrics": {"loss\n": "minimize"}},
            "metrics must have names of 1 to 100 printable characters, got 'loss\\n'",
        ),
        ({"metrics": ["loss"]}, "metrics must be a dict of directions by name, got ['loss']"),
        ({"metrics": {"loss": "min"}}, "metrics['loss'] must be minimize or maximize, got 'min'"),
        ({"metrics": {"loss": ["min"]}}, "metrics['loss'] must be minimize or maximize, got ['min']"),
        (
            {"default_objective": "auc"},
            "default_objective must be one of the metrics (train_loss, validation_loss), got 'auc'",
        ),
        ({"default_num_steps": True}, "default_num_steps must be an integer >= 1, got True"),
        ({"default_batch_size": "12"}, "default_batch_size must be an integer >= 1, got '12'"),
    ],
)
def test_an_impossible_description_is_refused_with_its_value(attributes: dict[str, Any], message: str | None) -> None:
    changed = type("Changed", (Sound,), attributes)
    if message is None:
        description_of(changed, name="m:C")
        return
    with pytest.raises(InvalidConfig) as caught:
        description_of(changed, name="m:C")
    assert message in caught.value.message


class WithRoles(Sound):
    option_roles: ClassVar[dict[str, str]] = {"path": "path", "num_workers": "reading"}

    def __init__(self, *, path: str, num_workers: int = 2, width: int = 3) -> None:
        super().__init__()


def test_a_class_says_which_of_its_options_are_not_of_the_model() -> None:
    options = description_of(WithRoles, name="mine:Mine").options
    assert {name: option.role for name, option in options.items()} == {
        "path": "path",
        "num_workers": "reading",
        "width": "model",
    }
    for roles, message in (
        ({"pth": "path"}, "option_roles of Other must be a dict of roles by option"),
        (
            {"path": "file"},
            r"option_roles\['path'\] must be one of model, shape, data, path, path_or_word, reading, cache, got 'file'",
        ),
    ):
        with pytest.raises(InvalidConfig, match=message):
            description_of(type("Other", (WithRoles,), {"option_roles": roles}), name="mine:Mine")


def test_what_a_class_lacks_is_listed_at_once() -> None:
    with pytest.raises(
        InvalidConfig, match=r"lacks the class attributes title, metrics, default_objective, default_num"
    ):
        description_of(object, name="m:C")


def test_defaults_that_json_cannot_hold_and_positional_only_parameters_are_refused() -> None:
    class HasSet(Sound):
        def __init__(self, names: frozenset[str] = frozenset({"a"})) -> None: ...

    class HasPositional(Sound):
        def __init__(self, name: str, /) -> None: ...

    class TakesAnything(Sound):
        def __init__(self, *arguments: Any, **options: Any) -> None: ...

    with pytest.raises(InvalidConfig, match=r"the default of option names must be JSON .* got frozenset\(\{'a'\}\)"):
        description_of(HasSet, name="m:C")
    with pytest.raises(InvalidConfig, match="parameter name of HasPositional must not be positional-only"):
        options_of(HasPositional)
    assert options_of(TakesAnything) == {}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "message"),
    [
        (
            "import no_such_library",
            r"module mine cannot be imported: ModuleNotFoundError: .*no_such_library.*\(mine.py, line 1\)",
        ),
        ("def f(:", r"module mine cannot be imported: SyntaxError: invalid syntax \(mine.py, line 1\)$"),
        (
            "\nopen('other.py', 'w').write('x = 1\\ny = (')\nimport other",
            r"SyntaxError: '\(' was never closed \(other.py, line 2\)$",
        ),
        ("\nexec('x = (')", r"SyntaxError: '\(' was never closed \(<string>, line 1\) \(mine.py, line 2\)$"),
        ("x = '\0'", r"cannot be imported: \w+: source code .*null bytes$"),
        ("import sys\nsys.exit(4)", r"it called sys.exit\(4\) \(mine.py, line 2\)"),
        ("x = 1", r"module mine has no class 'Mine' \(its classes: -\)"),
        ("Mine = 1\nclass Yours: ...", r"module mine has no class but 1 'Mine' \(its classes: Yours\)"),
        (
            "raise RuntimeError('\\x00\\x1b[31m' + 'x' * 10000)",
            r"RuntimeError: \\x00\\x1b\[31mx{400,500}\.\.\. \(mine.py",
        ),
        (
            "import os\nos.write(1, b'{\"description\": 1}')\nos._exit(5)",
            r"ended the process with exit status 5: \{.description",
        ),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", r"ended the process with signal SIGKILL"),
    ],
)
def test_a_module_that_cannot_be_imported_is_refused_with_its_error(mine: Path, program: str, message: str) -> None:
    (mine / "mine.py").write_text(program)
    with pytest.raises(InvalidConfig, match=message) as caught:
        ask("mine:Mine")
    assert caught.value.field == "workload"
    assert caught.value.message.isprintable()


@pytest.mark.processes
def test_a_killed_process_may_be_asked_again_and_one_that_ends_itself_need_not(mine: Path) -> None:
    for program, is_killed in (("os.kill(os.getpid(), signal.SIGKILL)", True), ("os.abort()", False)):
        (mine / "mine.py").write_text(f"import os, signal\n{program}")
        with pytest.raises(InvalidConfig) as caught:
            ask("mine:Mine")
        assert isinstance(caught.value, DescriptionKilled) is is_killed


@pytest.mark.processes
def test_a_missing_module_is_told_from_one_that_it_imports(mine: Path) -> None:
    with pytest.raises(InvalidConfig, match=rf"there is no module 'nowhere' among the installed packages and {mine}$"):
        ask("nowhere.at_all:Mine")


@pytest.mark.processes
def test_a_module_that_hangs_is_given_up_with_all_that_it_started(mine: Path) -> None:
    (mine / "mine.py").write_text(
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1e6)'])\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "time.sleep(1e6)\n"
    )
    with pytest.raises(InvalidConfig, match=r"mine:Mine: its import takes more than 20 s"):
        ask("mine:Mine", timeout_seconds=20)
    wait_until(lambda: not _is_running(int((mine / "pid").read_text())), "the end of its child")


@pytest.mark.processes
def test_an_entry_point_may_name_a_class_or_a_description(mine: Path) -> None:
    (mine / "described.py").write_text(
        "from trainers.workload.description import TokensPerExample, WorkloadDescription\n"
        "D = WorkloadDescription(name='told', title='t',\n"
        "    implementation='tests.support.trainers.broken_workloads:Sound',\n"
        "    metrics={'train_loss': 'minimize'}, default_objective='train_loss', default_num_steps=1,\n"
        "    default_evaluate_every=1, default_batch_size=1,\n"
        "    tokens_per_example=TokensPerExample('length', 'size', {'tiny': 8}))\n"
    )
    (mine / "misdescribed.py").write_text(
        "import dataclasses, described\nD = dataclasses.replace(described.D, title=set())\n"
    )
    entry_points = {"told": "described:D", "broken": "nowhere:X", "wrong": "json:loads", "untitled": "misdescribed:D"}
    install(mine, **{"my-model": "mine:Mine"}, **entry_points)
    description = describe("my-model")
    assert (description.name, description.implementation) == ("my-model", "mine:Mine")
    assert load("my-model", {"path": "x"}).num_train_examples == 50
    assert load("told", {}).num_train_examples == 50
    assert ask("my-model") == description
    with pytest.raises(InvalidConfig, match=r"nowhere:X cannot be imported: ModuleNotFoundError"):
        describe("broken")
    with pytest.raises(InvalidConfig, match=r"wrong = json:loads must name a class or a WorkloadDescription"):
        describe("wrong")
    with pytest.raises(UnknownWorkload, match=r"known: broken, .*my-model.*or your own as module:Class"):
        describe("unknown")
    installed = ask_for_installed()
    assert [one.name for one in installed.descriptions] == ["my-model", "told"]
    assert list(installed.descriptions) == [describe(name) for name in ("my-model", "told")]
    assert sorted(installed.problems) == ["broken", "untitled", "wrong"]
    assert installed.problems["untitled"] == "misdescribed:D is described wrongly: title must be a text, got set()"


@pytest.mark.processes
def test_the_command_prints_json_and_nothing_that_the_module_prints(mine: Path) -> None:
    (mine / "mine.py").write_text(f"{MINE}\nimport os\nprint('hello')\nos.write(1, b'\\xff\\x00')\n")
    shown = subprocess.run(
        [sys.executable, "-m", "trainers.workloads.describe", "mine:Mine"],
        env=environment_of_children(),
        capture_output=True,
        check=True,
    )
    told = answer_from_line(shown.stdout, WorkloadDescription.from_json)
    assert isinstance(told, WorkloadDescription)
    assert told.title == "Mine"
    assert b"hello" in shown.stderr
