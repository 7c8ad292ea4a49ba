"""Which paths trials may read, whatever lies at them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from trainers.config import InvalidConfig
from trainers.data.files import data_files
from trainers.data.roots import DataRoots, first_refusal
from trainers.workloads.registry import load


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user, and the current directory; data beside what is nobody's data."""
    home = tmp_path / "home"
    for name in ("sets", ".ssh", "service", "project"):
        (home / name).mkdir(parents=True)
    (home / "sets" / "corpus.txt").write_text("text " * 100)
    (home / ".ssh" / "id").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "project")
    return home


@pytest.fixture
def roots(home: Path) -> DataRoots:
    return DataRoots((str(home),), (str(home / "service"),), setting="ROOTS")


@pytest.mark.parametrize("path", ["~", "~/sets", "~/sets/corpus.txt", "~/sets/none.txt", "../sets", "mine.txt", "."])
def test_what_lies_in_a_root_may_be_read(roots: DataRoots, path: str) -> None:
    assert roots.refusal(path) is None
    assert roots.refusal(os.path.normpath(Path.cwd() / Path(path).expanduser())) is None


def test_what_lies_elsewhere_may_not_and_nobody_hears_whether_it_is_there(roots: DataRoots, home: Path) -> None:
    (home / "sets" / "link").symlink_to(home.parent / "outside.txt")
    (home / "sets" / "dangling").symlink_to(home.parent / "nothing.txt")
    (home / "sets" / "loop").symlink_to(home / "sets" / "loop" / "x")
    (home.parent / "into").symlink_to(home / "sets")
    for path in (
        "/etc/shadow",
        "/etc/no-such-file",
        "/proc/self/environ",
        "/",
        str(home.parent / "outside.txt"),
        str(home.parent / "nothing.txt"),
        str(home) + "-beside/x",
        "~/.ssh/id",
        "~/.ssh/none",
        "~/sets/../.ssh/id",
        "~/.ssh/../sets/corpus.txt",  # would tell whether there is a .ssh
        "/root/../" + str(home) + "/sets",
        "../../outside.txt",
        "sub/../../sets",
        "~/service/jobs.sqlite3",
        "~/sets/link",
        "~/sets/dangling",
        str(home.parent / "into" / "corpus.txt"),
        "~root/x",
        "~nobody-of-this-name/x",
        "a\0b",
        "\ud800",
    ):
        refusal = roots.refusal(path)
        assert refusal is not None, path
        assert refusal.replace(repr(path), "") == (
            " is in none of the directories that jobs may read (ROOTS of the service names them; by default the home "
            "of the service's user and the directory that it was started in), or hidden there, or leads back with '..'"
        )


def test_the_innermost_directory_decides(home: Path) -> None:
    (home / "service" / "sets").mkdir()
    inner = DataRoots((str(home), str(home / "service" / "sets"), str(home / ".ssh")), (str(home / "service"),))
    assert inner.refusal("~/service/sets/a") is None
    assert inner.refusal("~/.ssh/id") is None
    assert inner.refusal("~/service/a") is not None
    all_files = DataRoots(("/",))
    assert all_files.refusal("/etc/passwd") is not None
    assert all_files.refusal(str(home / "sets")) is None
    assert DataRoots(()).refusal("/etc/passwd") is not None


def test_a_root_may_be_a_link(home: Path, tmp_path: Path) -> None:
    (tmp_path / "data").symlink_to(home / "sets")
    linked = DataRoots((str(tmp_path / "data"),))
    assert linked.refusal(str(tmp_path / "data" / "corpus.txt")) is None
    assert linked.refusal(str(home / "sets" / "corpus.txt")) is None
    assert linked.refusal(str(home / "project")) is not None


def test_links_in_a_directory_must_not_lead_out(roots: DataRoots, home: Path) -> None:
    (home / "sets" / "more").symlink_to(home / "project")
    (home / "project" / "back").symlink_to(home / "sets")
    (home / "sets" / ".hidden").symlink_to("/etc/passwd")
    assert first_refusal(roots, "~/sets") is None
    (home / "project" / "deep").mkdir()
    (home / "project" / "deep" / "a.txt").symlink_to("/etc/passwd")
    refusal = first_refusal(roots, "~/sets")
    assert refusal is not None
    assert "deep/a.txt" in refusal


def test_a_link_in_a_circle_is_named(roots: DataRoots, home: Path) -> None:
    (home / "sets" / "circle.txt").symlink_to("circle.txt")
    refusal = first_refusal(roots, "~/sets")
    if sys.version_info < (3, 13):  # which takes it for a link to nothing, in the root
        assert refusal is not None
        assert "sets/circle.txt" in refusal


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"path": "/etc"}, "path"),
        ({"tokenizer": "/etc/shadow"}, "tokenizer"),
        ({"tokenizer": "bytes"}, None),
        ({"validation_path": "~/.ssh/id"}, "validation_path"),
        ({"cache_directory": "/var/lib/cache"}, "cache_directory"),
    ],
)
def test_a_rank_opens_nothing_outside(
    roots: DataRoots, home: Path, options: dict[str, str], option: str | None
) -> None:
    given = {"path": str(home / "sets" / "corpus.txt"), **options}
    expected = "workload_options" if option is None else f"workload_options.{option}: .* is in none of the direct"
    with pytest.raises(InvalidConfig, match=rf"^{expected}"):
        load("text-lm", given, data_roots=roots)


def test_a_pattern_stays_below_its_directory(home: Path) -> None:
    with pytest.raises(ValueError, match="it leads out of there"):
        data_files("path", str(home / "sets"), pattern="../.ssh/*")
