"""Job files and the settings that change them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from service.cli.job_file import apply_settings, read_job_file
from service.errors import InvalidInput


def _read(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return read_job_file(path).content


def test_scalars_are_what_json_would_make_of_them(tmp_path: Path) -> None:
    text = "a: 1e-4\nb: no\nc: 2026-01-01\nd: 012\ne: [1, 2.5, true, null, .5]\nf: '7'\ng: 1_000\n"
    assert _read(tmp_path, text) == {
        "a": 1e-4, "b": "no", "c": "2026-01-01", "d": 12, "e": [1, 2.5, True, None, 0.5], "f": "7", "g": "1_000",
    }  # fmt: skip


def test_without_standard_input_a_file_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it where a process begins with it closed
    with pytest.raises(InvalidInput, match="is closed: give the path of a file"):
        read_job_file(Path("-"))


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    with pytest.raises(InvalidInput, match=r"picture.png: is no text: its byte 1 is not UTF-8"):
        read_job_file(tmp_path / "picture.png")


def test_json_is_read_too(tmp_path: Path) -> None:
    assert _read(tmp_path, '{"workload": {"name": "digits-mlp"}, "tags": {}}')["workload"] == {"name": "digits-mlp"}


ALIASES_OF_ALIASES = "a0: &a0 [1]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 7)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "must hold an object"),
        ("", "must hold an object with a `workload`, it is empty; `shampoo-tuner init WORKLOAD` writes one"),
        ("a: [", "line 1, column 5: "),
        ("a:\n\tb: 1", "line 2, column 1: a tab, where YAML wants spaces"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: 'a' is given twice"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("a: " + "9" * 5000, "Exceeds the limit"),
        ("a: &a [*a]", "is nested too deeply, or has an alias within what it stands for"),
        (ALIASES_OF_ALIASES, "holds more than 1,000,000 values"),
    ],
)
def test_an_unreadable_file_is_refused_with_its_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        _read(tmp_path, text)
    assert caught.value.field.endswith("job.yaml")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_job_file(tmp_path / "none.yaml")


def test_settings_reach_nested_fields_and_leave_the_original_alone() -> None:
    content = {"workload": {"name": "x"}, "baseline": None, "search_space": {"parameters": [{"low": 1}]}}
    changed = apply_settings(
        content,
        ["budget.num_trials=8", "baseline.budget_share=0.5", "search_space.parameters[0].low=1e-3", "name=a=b"],
    )
    assert changed == {
        "workload": {"name": "x"},
        "budget": {"num_trials": 8},
        "baseline": {"budget_share": 0.5},
        "search_space": {"parameters": [{"low": 1e-3}]},
        "name": "a=b",
    }
    assert content == {"workload": {"name": "x"}, "baseline": None, "search_space": {"parameters": [{"low": 1}]}}


def test_settings_of_text_are_text_unless_they_are_nothing() -> None:
    changed = apply_settings({}, ["tags.run=1", "tags.b=no: x", "name=true", 'model="7"', "notes=null", "tags.c="])
    assert changed == {
        "tags": {"run": "1", "b": "no: x", "c": None}, "name": "true", "model": "7", "notes": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    "setting", ["budget", "=1", ".=1", "a..b=1", "a.=1", "workload.name.first=1", "tags[0]=1", "list[5]=1"]
)
def test_an_impossible_setting_is_refused(setting: str) -> None:
    with pytest.raises(InvalidInput):
        apply_settings({"workload": {"name": "x"}, "list": [1]}, [setting])
