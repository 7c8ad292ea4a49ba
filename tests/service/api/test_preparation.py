"""Requests that need processes: few at once, the same one once, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api import preparation
from service.api.preparation import Preparations
from service.errors import InvalidInput, NotDoneYet, ServiceBusy
from service.specification.planning import own_workload
from service.specification.workloads import describe_workload
from service.store.session import Database
from tests.support import event_loop
from tests.support.service.live import running
from tests.support.service.scenarios import submit


def test_few_work_a_few_wait_and_further_ones_are_told_at_once() -> None:
    async def ask() -> list[Any]:
        preparations, go, num_working = Preparations(at_once=2, waiting=1), threading.Event(), 0

        def work() -> int:
            nonlocal num_working
            num_working += 1
            go.wait()
            return num_working

        first = [asyncio.create_task(preparations.do(str(number), work)) for number in range(3)]
        twin = asyncio.create_task(preparations.do("1", work))
        while num_working < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(ServiceBusy, match="2 requests that need a process of their own at once, and others wait"):
            await preparations.do("4", work)
        assert num_working == 2
        first[0].cancel()  # its reader left: the work goes on, and keeps its place until it is done
        go.set()
        results = await asyncio.gather(*first[1:], twin)
        assert await preparations.do("4", work) == num_working == 4
        return results

    done = event_loop.run(ask())
    assert done[0] == done[-1]


def test_one_token_leaves_a_process_to_others() -> None:
    async def ask() -> None:
        preparations, go = Preparations(at_once=2, waiting=8), threading.Event()
        held = asyncio.create_task(preparations.do("a", go.wait, token="ada"))
        await asyncio.sleep(0)
        with pytest.raises(ServiceBusy, match="of one token"):
            await preparations.do("b", go.wait, token="ada")
        assert await preparations.do("c", lambda: 1, token="bob") == 1
        go.set()
        assert await held
        assert await preparations.do("b", lambda: 2, token="ada") == 2

    event_loop.run(ask())


def test_an_error_reaches_all_who_asked_and_is_not_kept() -> None:
    async def ask() -> None:
        preparations = Preparations()

        def refuse() -> None:
            raise InvalidInput("workload.name", "is none")

        both = await asyncio.gather(*(preparations.do("x", refuse) for _ in range(2)), return_exceptions=True)
        assert [type(error) for error in both] == [InvalidInput, InvalidInput]
        assert await preparations.do("x", lambda: 1) == 1

    event_loop.run(ask())


def test_what_takes_longer_than_clients_wait_goes_on_and_is_kept_for_who_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask() -> None:
        preparations, go, asked = Preparations(), threading.Event(), list[int]()

        def work() -> int:
            asked.append(0)
            go.wait()
            return len(asked)

        monkeypatch.setattr(preparation, "ANSWER_SECONDS", 0.05)
        for _ in range(2):
            with pytest.raises(NotDoneYet, match=r"more than 0\.05 s and goes on: ask again"):
                await preparations.do("x", work)
        monkeypatch.undo()
        go.set()
        while preparations.num_running:
            await asyncio.sleep(0.01)
        assert await preparations.do("x", work) == 1  # by now nothing works for it
        assert await preparations.do("x", work) == 2  # it is given once, and found out anew for the next

    event_loop.run(ask())


@pytest.mark.slow
def test_slow_descriptions_hold_up_nobody_else(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty submissions of slow code: a few are described, each once; the others are refused, and the rest is quick."""
    go, asked, describe = threading.Event(), list[str](), describe_workload

    def slow(name: str) -> Any:
        if not name.startswith("slow"):
            return describe(name)
        asked.append(name)
        assert go.wait(60)
        raise InvalidInput("workload.name", "is none")

    monkeypatch.setattr(own_workload, "describe_workload", slow)
    bodies = [{"workload": {"name": f"slow_{index % 20}:Slow"}} for index in range(40)]

    async def ask(url: str) -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, trust_env=False, verify=False, timeout=60, limits=limits) as http:
            posts = [asyncio.create_task(http.post("/v1/jobs", json=body)) for body in bodies]
            while sum(post.done() for post in posts) < 16:
                await asyncio.sleep(0.02)
            assert (await http.get("/v1/jobs")).status_code == 200
            made = await http.post("/v1/jobs", json={"workload": {"name": "digits-mlp"}})
            assert made.status_code == 201
            go.set()
            return [await post for post in posts]

    with running(sqlite_database, data_dir=tmp_path, allow_code=True) as url:
        answers = event_loop.run(ask(url))
    busy = [answer for answer in answers if answer.status_code == 503]
    assert len(busy) == 16  # of eight names, twice each
    assert {answer.headers["Retry-After"] for answer in busy} == {"5"}
    assert {answer.json()["type"] for answer in busy} == {"urn:shampoo-tuner:problem:busy"}
    assert {answer.status_code for answer in answers} == {422, 503}
    assert len(asked) == len(set(asked)) == 12


def test_a_proposal_to_a_slow_workload_keeps_no_writer_waiting(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = describe_workload("digits-mlp")
    monkeypatch.setattr(own_workload, "describe_workload", lambda _: described)
    other = submit(sqlite_database)
    job_id = submit(sqlite_database, workload={"name": "mine:Mine"})
    monkeypatch.setattr(own_workload, "describe_workload", lambda _: describe())

    def describe() -> Any:
        # Nobody has SQLite's write lock meanwhile.
        assert httpx.post(f"{url}/v1/jobs/{other}/pause", trust_env=False, verify=False, timeout=10).status_code == 200
        return described

    with running(sqlite_database, allow_code=True) as url:
        path = f"{url}/v1/jobs/{job_id}/trials"
        answer = httpx.post(path, json={"parameters": {}}, trust_env=False, verify=False, timeout=30)
    assert answer.status_code == 202, answer.text
