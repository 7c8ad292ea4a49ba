"""The manual of the client, whose code is run; and the client that awaits, against the real API."""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service import client as package
from service.client import ApiError, AsyncClient, Client, Tuned, WaitedTooLong, tune
from service.domain import JobState, Phase
from service.errors import InvalidInput
from service.store.session import Database
from service.use_cases.leases import Lease
from service.use_cases.run import finish_job
from tests.support import event_loop
from tests.support.service.live import finished_job, running
from tests.support.service.scenarios import NOW, add_worker, claim, run_trial, submit
from tests.support.waiting import PATIENCE_SECONDS, wait_until


def _manual() -> dict[str, Callable[..., Any]]:
    text = (Path(package.__file__).parent / "README.md").read_text()
    defined: dict[str, Callable[..., Any]] = {}
    for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(code, defined)  # the manual's own
    return defined


@pytest.mark.slow
def test_the_code_of_the_manual_does_what_it_says(
    sqlite_database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        own, leases = add_worker(sqlite_database), list[Lease]()

        def has_claimed() -> bool:
            found = claim(sqlite_database, own)
            leases.extend([] if found is None else [found])
            return bool(leases)

        wait_until(has_claimed, "a job")
        lease = leases[0]
        for number, loss in enumerate((0.5, 0.2)):
            run_trial(sqlite_database, lease, number, loss)
        run_trial(sqlite_database, lease, 2, 0.4, Phase.BASELINE)
        with sqlite_database.writing() as session:
            finish_job(session, lease, failure=None, now=NOW)

    with running(sqlite_database) as url:
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        assert "Shampoo" in _manual()["tune_and_wait"](url)
        worker.join(PATIENCE_SECONDS)
        told = capsys.readouterr()
        assert "mine: succeeded: 3/3 trials" in told.err
        assert "1 completed 0.2" in told.out
        assert event_loop.run(_manual()["look"](url)) == ["mine: succeeded"]
        queued = _manual()["tune_in_a_notebook"](url)
        assert list(queued.trials().columns) == ["phase", "state", "value", "step", "seconds"]
        assert queued.recommendation is None
        [done] = [job for job in queued.client.jobs() if job.name == "mine"]
        found = Tuned(done, None, queued.client).wait(progress=False)
        table = found.trials()
        assert table["value"].tolist() == [0.5, 0.2, 0.4]
        assert table.loc[2, "phase"] == Phase.BASELINE
        assert found.curve(1)["validation_loss"].iloc[-1] == 0.2
        page = found._repr_html_()
        assert "<td>succeeded</td>" in page
        assert "Shampoo has validation_loss 0.2000" in page
        printed = str(found).splitlines()
        assert printed[:3] == ["mine", f"Job: {done.id}", "State: succeeded"]
        assert "Shampoo for digits-mlp" in printed
        assert any("Shampoo has validation_loss 0.2000" in line for line in printed)
        assert str(queued).startswith("digits-mlp\nJob: ")
        hostile = queued.job.model_copy(update={"name": "a\x1b[2Jb\u202ec"})
        assert str(hostile).startswith("a\\x1b[2Jb\\u202ec\nJob: ")
        queued.client.close()


@pytest.mark.slow
def test_the_client_that_awaits_gives_the_same(sqlite_database: Database) -> None:
    job_id = finished_job(sqlite_database)
    waiting = submit(sqlite_database)

    async def ask(url: str) -> None:
        async with AsyncClient(url) as client:
            with Client(url) as other:
                assert [job async for job in client.jobs()] == list(other.jobs())
                assert [one async for one in client.measurements(job_id, 0)] == list(other.measurements(job_id, 0))
                assert await client.recommendation(job_id) == other.recommendation(job_id)
                exported = b"".join([piece async for piece in client.export(job_id, table="trials")])
                assert exported == b"".join(other.export(job_id, table="trials"))
            told = [event async for event in client.events(job_id)]
            assert told[-1].data["state"] == "succeeded"
            with pytest.raises(ApiError) as refused:
                await client.job("job_x")
            assert refused.value.status == 404
            with pytest.raises(WaitedTooLong):
                await client.wait(waiting, timeout_seconds=0.05, poll_seconds=0.02)
            seen: list[JobState] = []
            await client.cancel(waiting)
            await client.wait(waiting, progress=lambda job: seen.append(job.state))
            assert seen == [JobState.CANCELLED]

    with running(sqlite_database) as url:
        event_loop.run(ask(url))


def test_a_class_goes_along_with_its_module_and_one_of_a_cell_is_refused(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_workload.py").write_text("class Mine:\n    pass\n")
    (tmp_path / "my_space").mkdir()
    for name in ("model.py", "layers.py"):  # a package without __init__.py
        (tmp_path / "my_space" / name).write_text("class Mine:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    mine = importlib.import_module("my_own_workload").Mine
    in_space = importlib.import_module("my_space.model").Mine
    with running(sqlite_database, data_dir=tmp_path, allow_code=True) as url, Client(url) as client:
        with pytest.raises(ApiError, match="no_such_field"):
            tune(mine, budget=2, wait=False, url=url, no_such_field=1)
        assert [code.num_files for code in client.code()] == [1]
        with pytest.raises(ApiError, match="no_such_field"):
            tune(in_space, budget=2, wait=False, url=url, no_such_field=1)
        assert sorted(code.num_files for code in client.code()) == [1, 2]
        of_cell = type("Cell", (), {"__module__": "__main__"})
        with pytest.raises(InvalidInput, match="%%writefile"):
            tune(of_cell, budget=2, wait=False, url=url)


def test_a_budget_that_is_none_is_refused_by_the_service(sqlite_database: Database) -> None:
    with running(sqlite_database) as url, pytest.raises(ApiError) as refused:
        tune("digits-mlp", budget="8", wait=False, url=url)  # type: ignore[arg-type]  # as a user may
    assert str(refused.value) == "budget.num_trials: must be a valid integer, got '8': write 8"
