"""Processes that start by themselves, as all do where none is kept warm."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psutil
import pytest

from service.scheduler.cluster import process_tree
from tests.support.elsewhere import killpg_of_macos
from tests.support.waiting import wait_until
from trainers.processes.starting import Streams, start

pytestmark = pytest.mark.processes


def test_one_that_has_ended_before_it_is_waited_for_can_be_ended_on_macos_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "short.py").write_text("print('a word')")
    (tmp_path / "long.py").write_text("import time; time.sleep(1000)")
    monkeypatch.setattr(os, "killpg", killpg_of_macos)
    others = set(psutil.Process().children())
    with ExitStack() as stack:
        files = [stack.enter_context(Path(os.devnull).open("r+b")) for _ in range(3)]
        streams = Streams(*(file.fileno() for file in files))
        for module in ("short", "long"):
            process = start(module, [], streams, environment={**os.environ, "PYTHONPATH": str(tmp_path)})
            [child] = set(psutil.Process().children()) - others
            if module == "short":
                wait_until(partial(process_tree.any_is_gone, [child]), "its end")
            process.end()
            assert not child.is_running()
