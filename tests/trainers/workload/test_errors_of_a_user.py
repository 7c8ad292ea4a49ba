"""Errors of a user's code: one line, with the place in that code."""

from __future__ import annotations

import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainers.workload.user_workload import explain, import_class, printable


def test_an_error_that_a_library_raises_is_told_with_the_line_of_the_users_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_layers.py").write_text(
        "import torch\n\ndef forward():\n    torch.nn.Linear(9, 1)(torch.ones(2, 8))\n"
    )
    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        importlib.import_module("own_layers").forward()
    assert explain(caught.value).endswith("cannot be multiplied (2x8 and 9x1) (own_layers.py, line 4)")


def test_what_this_project_says_of_users_code_comes_without_a_line() -> None:
    with ThreadPoolExecutor(1) as alone:  # without this test's own lines
        error = alone.submit(import_class, "no_such_module:Mine").exception()
    assert error is not None
    assert explain(error) == f"InvalidConfig: {error}"


def test_errors_of_a_users_code_are_one_printable_line() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert explain(Unspeakable()) == "Unspeakable: (its message cannot be shown)"
    assert explain(KeyError()) == "KeyError"
    assert printable("a\n\tb\x07" + "c" * 9, limit=6) == "a b\\x07cc..."
    assert os.linesep not in printable("a\nb", limit=10)
