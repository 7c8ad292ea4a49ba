"""How the tests are shared out among workers, and what is said of those that start or fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from tests.support import lanes, rings
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
SUITE = {
    "test_alone": """
        pytestmark = pytest.mark.services
        def test_short(): pass
        @pytest.mark.services(minutes=2)
        def test_long(): pass
    """,
    "test_beside": """
        @pytest.mark.patient
        def test_patient(): pass
        def test_fast(): pass
    """,
    "test_one": """
        import multiprocessing, subprocess, sys
        @pytest.mark.processes
        def test_marked():
            subprocess.run([sys.executable, "-c", ""], check=True)
        @pytest.fixture(scope="session")
        def two_ranks():
            with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
                yield process
                process.communicate()
        def test_with_ranks(two_ranks): pass
    """,
    "test_unmarked": """
        import multiprocessing, os, subprocess, sys
        @pytest.fixture
        def process():
            subprocess.run([sys.executable, "-c", ""], check=True)
        def test_of_a_fixture(process): pass
        def test_that_forks():
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        @pytest.mark.parametrize("how", ["fork", "forkserver", "spawn"])
        def test_of_multiprocessing(how):
            process = multiprocessing.get_context(how).Process(target=print)
            process.start()
            process.join()
        def test_that_fails(): assert False
        def test_good(): pass
    """,
}


def run(directory: Path, *options: str) -> tuple[subprocess.CompletedProcess[str], dict[str, tuple[str, str]]]:
    """Runs the suite above; by each test the worker that ran it and how it ended, in order."""
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n" + "".join(f"    {line}\n" for line in markers))
    for name, content in SUITE.items():
        text = "import pytest\n" + "\n".join(line[8:] for line in content.split("\n"))
        (directory / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "xdist", "-p", "no:cacheprovider", "-v"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        [*command, *options],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    told = re.findall(r"^\[(gw\d)\].*(PASSED|FAILED) (\S+) *$", ran.stdout, re.MULTILINE)
    return ran, {name: (worker, outcome) for worker, outcome, name in told}


def test_lanes_are_handed_out_in_order_and_whoever_starts_a_process_without_a_marker_fails(tmp_path: Path) -> None:
    ran, found = run(tmp_path, "-n", "2")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert {name for name, (_, outcome) in found.items() if outcome == "FAILED"} == {
        "test_unmarked.py::test_that_fails"
    }
    errors = set(re.findall(r"^_+ ERROR at teardown of (\S+) _+$", ran.stdout, re.MULTILINE))
    assert ran.stdout.count("this test starts a process without saying so") >= len(errors)
    of_multiprocessing = {f"test_of_multiprocessing[{how}]" for how in ("fork", "forkserver", "spawn")}
    unmarked = {"test_of_a_fixture", "test_that_forks", *of_multiprocessing}
    assert errors == unmarked, ran.stdout

    of_first = [name for name, (worker, _) in found.items() if worker == "gw0"]
    assert of_first[:2] == ["test_alone.py::test_long", "test_alone.py::test_short"]
    others = [name for name, (worker, _) in found.items() if worker == "gw1"]
    assert others[:1] == ["test_beside.py::test_patient"]
    for name in ("test_unmarked.py::test_that_fails", "test_unmarked.py::test_of_multiprocessing[spawn]"):
        assert re.search(rf"^tests/run -n 0 '?{re.escape(name)}'?$", ran.stdout, re.MULTILINE)


def test_what_ends_its_worker_fails_once_and_all_others_are_run(tmp_path: Path) -> None:
    (tmp_path / "test_mortal.py").write_text(
        "import os\ndef test_first(): pass\ndef test_mortal(): os._exit(1)\ndef test_last(): pass\n"
    )
    (tmp_path / "test_other.py").write_text("def test_other(): pass\n")
    ran, found = run(tmp_path, "-n", "2", "test_mortal.py", "test_other.py")
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.count("node down: Not properly terminated") == 1
    passed = {name for name, (_, outcome) in found.items() if outcome == "PASSED"}
    assert passed == {"test_mortal.py::test_first", "test_mortal.py::test_last", "test_other.py::test_other"}
    assert "crashed while running 'test_mortal.py::test_mortal'" in ran.stdout


def test_the_table_has_the_processor_time_of_each_file_and_of_what_it_started(tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(
        "import subprocess, sys, pytest\n"
        "@pytest.mark.processes\n"
        "def test_busy():\n"
        "    code = 'import time; began = time.process_time()\\nwhile time.process_time() < began + 0.5: pass'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    table = tmp_path / "table.md"
    run(tmp_path, "-n", "2", "--cpu-table", str(table), "--deselect", "test_unmarked.py")
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.read_text().splitlines()[2:]]
    assert rows[0][:2] == ["test_busy.py", "1"]
    assert {tuple(row[:2]) for row in rows[1:-1]} == {(f"test_{name}.py", "2") for name in ("alone", "beside", "one")}
    assert rows[-1][:2] == ["sum", "7"]
    user, system, cpu, _ = map(float, rows[0][2:])
    assert cpu >= 0.5
    assert cpu == pytest.approx(user + system, abs=0.11)


def test_the_end_of_a_process_that_others_have_used_takes_nothing_from_the_file_in_which_it_ends(
    tmp_path: Path,
) -> None:
    (tmp_path / "conftest.py").write_text(
        "import subprocess, sys, pytest\n"
        "BUSY = 'import time\\nwhile time.process_time() < 1: pass\\nprint(flush=True)\\ninput()'\n"
        "STARTING = f'import subprocess, sys\\nsubprocess.run([sys.executable, \"-c\", {BUSY!r}])'\n"
        "@pytest.fixture(scope='session')\n"
        "def busy():\n"
        "    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}\n"
        "    with subprocess.Popen([sys.executable, '-c', STARTING], **pipes) as process:\n"
        "        process.stdout.readline()\n"
        "        yield\n"
        "        process.kill()\n"  # nobody waits for the one that it has started
    )
    for name in ("first", "second"):
        text = f"import pytest\n@pytest.mark.processes\ndef test_{name}(busy): pass\n"
        (tmp_path / f"test_{name}.py").write_text(text)
    table = tmp_path / "table.md"
    ran, _ = run(tmp_path, "-n", "0", "--cpu-table", str(table), "test_first.py", "test_second.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.read_text().splitlines()[2:]]
    taken = {row[0]: float(row[4]) for row in rows}
    assert taken["test_first.py"] >= 1.0
    assert taken["test_second.py"] >= 0.0


def test_the_fast_ring_is_a_part_of_what_has_no_lane_and_all_of_it_where_a_path_is_given(tmp_path: Path) -> None:
    (tmp_path / "test_many.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(3 * 8))\n"
        "def test_case(number): pass\n"
        "@pytest.mark.slow\n"
        "def test_slow(): pass\n"
    )
    _, ring = run(tmp_path, "-n", "2", "--fast", "--deselect", "test_unmarked.py")
    cases = {f"test_many.py::test_case[{number}]" for number in range(24)}
    assert ring.keys() - cases == {"test_beside.py::test_fast"}
    assert len(ring.keys() & cases) == 24 // rings.EVERY

    _, named = run(tmp_path, "-n", "2", "--fast", "test_beside.py", "test_many.py")
    assert named.keys() == {"test_beside.py::test_fast", "test_many.py::test_slow"} | cases


def test_a_commit_draws_half_of_the_cases_and_of_what_starts_services_and_the_next_another_half(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_many.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(8))\n"
        "def test_case(number): pass\n"
        "@pytest.mark.parametrize('number', range(2))\n"
        "def test_two(number): pass\n"
        "def test_one(): pass\n"
        "@pytest.mark.parametrize('number', range(64))\n"
        "@pytest.mark.services\n"
        "def test_service(number): pass\n"
        "@pytest.mark.patient\n"
        "@pytest.mark.always\n"
        "def test_always(): pass\n"
        + "".join(f"@pytest.mark.patient\ndef test_patient_{number}(): pass\n" for number in range(32))
    )
    draws = []
    for commit in ("aaaa", "aaaa", "bbbb"):
        ran, found = run(tmp_path, "-n", "2", "test_many.py", f"--draw={commit}")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert f"a half of the suite, as {commit} draws it" in ran.stdout
        met = Counter(name.partition("[")[0].removeprefix("test_many.py::") for name in found)
        assert (met["test_case"], met["test_two"], met["test_one"], met["test_service"]) == (4, 2, 1, 32)
        assert met["test_always"] == 1
        assert 8 <= sum(name.startswith("test_patient") for name in met) <= 24
        draws.append(found.keys())
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize(
    ("node_id", "lane", "scope"),
    [
        ("tests/service/cli/test_demo.py::test_it[a::b]", "services", "services"),
        ("tests/service/behaviour/test_front.py::test_it", "patient", "patient, first row"),
        ("tests/e2e/test_workloads.py::test_it", "patient", "patient"),
        ("tests/service/cli/test_demo.py::test_it[a::b]", "fast", "fast tests/service/cli/test_demo.py"),
        ("tests/shampoo/distributed/test_a.py::test_it", "processes", "processes tests/shampoo/distributed"),
        ("tests/shampoo/distributed/test_a.py::test_it", "fast", "fast tests/shampoo/distributed/test_a.py"),
    ],
)
def test_those_with_services_are_one_scope_and_others_are_files_or_share_warm_ranks(
    node_id: str, lane: str, scope: str
) -> None:
    assert lanes.scope(node_id, lane) == scope
