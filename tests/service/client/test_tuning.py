"""`tune`, as a notebook or a script calls it."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from service.client import Client, Tuned, tune
from service.client.calls import Call, nothing
from service.store.session import Database
from tests.support.service.live import finished_job, running

WORKLOAD = """\
from width_of_mine import WIDTH
from tests.support.trainers.picky_model import Sound


class Mine(Sound):
    pass
"""


@pytest.mark.processes
@pytest.mark.usefixtures("warm_process")
def test_a_directory_goes_along_that_is_given_as_text(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "notebooks"
    place.mkdir()
    (place / "mine_of_a_notebook.py").write_text(WORKLOAD)
    (place / "width_of_mine.py").write_text("WIDTH = 8\n")
    monkeypatch.syspath_prepend(place)
    mine = importlib.import_module("mine_of_a_notebook").Mine
    with running(sqlite_database, allow_code=True) as url:
        found = tune(mine, budget=2, wait=False, url=url, send_code=str(place))
        with found.client as client:
            [kept] = client.code()
    assert found.job.specification.code is not None
    assert (kept.sha256, kept.num_files) == (found.job.specification.code.sha256, 2)


def test_a_prompt_shows_what_was_found_in_words(sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    with running(sqlite_database) as url, Client(url) as client:
        found = Tuned(client.job(job_id), None, client).wait(progress=False)
        assert repr(found) == str(found)
        assert "JobRead(" not in repr([found])


def test_paths_and_numbers_of_numpy_and_torch_may_be_in_a_request() -> None:
    body = {"path": Path("data/x"), "width": np.int64(3), "lr": [np.float32(0.5)], "sizes": np.arange(2)}
    sent = Call(nothing, "POST", "/", body={**body, "seed": torch.tensor(7)}).content
    assert json.loads(sent or b"") == {"path": "data/x", "width": 3, "lr": [0.5], "sizes": [0, 1], "seed": 7}
    with pytest.raises(TypeError, match="cannot have a set in it"):
        _ = Call(nothing, "POST", "/", body={"width": {1}}).content


@pytest.mark.parametrize("url", ["127.0.0.1:8730", "localhost:8730", "tuner.example.org", "ftp://x", "http://"])
def test_an_address_that_is_none_of_http_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="must begin with http:// or https://"):
        Client(url)
