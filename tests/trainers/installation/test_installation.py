"""Findings about an installation: packages of other projects under names of ours, and missing extras."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trainers
from tests.support.waiting import PATIENCE_SECONDS
from trainers.installation import command
from trainers.installation.distribution import (
    MARK,
    PACKAGES,
    ForeignPackage,
    check_packages,
    check_packages_here,
    version,
)
from trainers.installation.extras import MissingExtra, missing_of, needing, requirements_of

ROOT = Path(trainers.__file__).parents[1]
COMMAND = Path(sys.executable).with_name("shampoo-tuner")


def _package(directory: Path, name: str) -> Path:
    """Another project's package of that name."""
    (directory / name).mkdir(parents=True)
    (directory / name / "__init__.py").write_text("VALUE = 1\n")
    return directory


def _run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


@pytest.mark.parametrize("name", PACKAGES)
def test_each_of_our_packages_has_the_line_by_which_it_is_known(name: str) -> None:
    assert MARK in (ROOT / name / "__init__.py").read_text()


def test_our_packages_pass() -> None:
    check_packages(PACKAGES)
    check_packages(PACKAGES, directories=[str(ROOT)])


@pytest.mark.parametrize("name", PACKAGES)
def test_another_projects_package_that_comes_first_is_named_with_its_place(name: str, tmp_path: Path) -> None:
    _package(tmp_path, name)
    with pytest.raises(ForeignPackage, match=f"another project's '{name}' in {tmp_path}") as raised:
        check_packages(PACKAGES, directories=[str(tmp_path), str(ROOT)])
    assert str(ROOT) in str(raised.value)
    check_packages(PACKAGES, directories=[str(ROOT), str(tmp_path)])


def test_a_module_is_in_the_way_and_a_folder_without_code_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service").mkdir()
    check_packages_here()
    (tmp_path / "service.py").write_bytes(b"# \xff is no UTF-8\n")
    with pytest.raises(ForeignPackage, match="'service'"):
        check_packages_here()


def test_another_copy_of_our_packages_is_not_in_the_way(tmp_path: Path) -> None:
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        shutil.copy(ROOT / name / "__init__.py", tmp_path / name)
    check_packages(PACKAGES, directories=[str(tmp_path), str(ROOT)])


@pytest.mark.processes
def test_a_distribution_that_was_installed_over_ours_is_named(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "trainers" / "installation", tmp_path / "trainers" / "installation")
    shutil.copy(ROOT / "trainers" / "__init__.py", tmp_path / "trainers")
    _package(tmp_path, "shampoo")
    information = tmp_path / "suds-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: suds\nVersion: 1.0\n")
    (information / "RECORD").write_text("shampoo/__init__.py,,\nsuds-1.0.dist-info/METADATA,,\n")
    program = (
        f"import sys; sys.argv = ['shampoo-tuner']; sys.path.append({str(tmp_path)!r})\n"
        "import trainers.installation.command as c; c.main()"
    )
    refused = _run(sys.executable, "-I", "-S", "-c", program, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("shampoo-tuner: suds has put a package called 'shampoo' in the place of the one")
    assert "own (python -m venv)" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.processes
def test_importing_trainers_or_the_service_beside_another_shampoo_says_so(tmp_path: Path) -> None:
    path = f"{_package(tmp_path, 'shampoo')}:{ROOT}"
    for name in ("trainers", "service"):
        refused = _run(sys.executable, "-c", f"import {name}", cwd=Path("/"), PYTHONPATH=path)
        assert refused.returncode == 1
        assert f"another project's 'shampoo' in {tmp_path}" in refused.stderr.splitlines()[-1]


@pytest.mark.processes
def test_training_beside_another_projects_service_is_fine(tmp_path: Path) -> None:
    path = f"{_package(tmp_path, 'service')}:{ROOT}"
    assert _run(sys.executable, "-c", "import trainers", cwd=Path("/"), PYTHONPATH=path).returncode == 0


@pytest.mark.processes
def test_the_command_tells_of_another_service_without_a_traceback(tmp_path: Path) -> None:
    refused = _run(COMMAND, "jobs", cwd=Path("/"), PYTHONPATH=str(_package(tmp_path, "service")))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"shampoo-tuner: Python finds another project's 'service' in {tmp_path}")


@pytest.mark.processes
@pytest.mark.parametrize("arguments", ["serve", "api", "worker", "demo", "workload check digits-mlp"])
@pytest.mark.processes
def test_what_imports_from_the_directory_refuses_one_with_other_trainers(arguments: str, tmp_path: Path) -> None:
    refused = _run(COMMAND, *arguments.split(), cwd=_package(tmp_path, "trainers"), HOME=str(tmp_path))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "another project's 'trainers'" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trainers"]


def test_the_requirements_of_an_extra_are_those_of_the_extras_it_refers_to() -> None:
    requirements = [
        "torch>=2",
        "shampoo-tuner[one,two]; extra == 'all'",
        'psycopg[binary]>=3; python_version > "3" and extra == "one"',
        "shampoo-tuner[all]>=0; extra == 'two'",
        "python-ulid; extra == 'two'",
        "mypy; extra == 'three'",
    ]
    assert requirements_of("all", requirements) == {"psycopg", "python-ulid"}
    assert requirements_of("three", requirements) == {"mypy"}
    assert requirements_of("four", requirements) == set()


def test_nothing_of_the_service_is_missing_here_and_what_would_be_is_known() -> None:
    assert missing_of("service") == []
    known = requirements_of("service", importlib.metadata.requires("shampoo-tuner") or [])
    assert {"fastapi", "ray", "scikit-learn", "pyarrow", "typer"} <= known
    assert not {"torch", "shampoo-tuner", "mypy"} & known


def test_a_missing_library_names_the_extra_that_has_it_and_a_missing_module_of_ours_itself() -> None:
    told = "the client needs the extra 'api', which is not installed: pip install"
    with pytest.raises(MissingExtra, match=told), needing("api", subject="the client"):
        importlib.import_module("no_such_library.part")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), needing("api"):
        importlib.import_module("service.no_such_module")


@pytest.mark.processes
def test_a_checkout_that_was_never_installed_has_no_version(tmp_path: Path) -> None:
    assert version() == importlib.metadata.version("shampoo-tuner")
    program = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from trainers.installation.distribution import version\nprint(version())"
    )
    assert _run(sys.executable, "-I", "-S", "-c", program, cwd=tmp_path).stdout == "unknown\n"


def test_on_windows_the_command_says_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "service.cli.commands", None)  # it imports what Windows lacks
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
    assert re.fullmatch(r"shampoo-tuner: .* Windows; .* WSL 2, .*\n", capsys.readouterr().err)


def test_ctrl_c_while_the_command_imports_ends_it_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == command.INTERRUPTED
