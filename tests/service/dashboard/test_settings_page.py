"""The page of the settings: who sees and does what, and whole stories in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from service.access.caller import ANYBODY, Caller, Scope
from service.access.token_state import TokenState
from service.access.tokens import create_token, revoke_token
from service.dashboard.settings_page.view import Door, door_of, project_row, size, tokens_of
from service.domain import DEFAULT_PROJECT
from service.settings import Access
from service.store.models import Project
from service.store.repositories import ProjectRepository, TokenRepository, Usage
from service.store.repositories.webhooks import WebhookRepository
from service.store.session import Database
from service.use_cases.webhooks import add_webhook
from service.webhooks.signing import new_secret
from tests.service.dashboard.conftest import Watched, open_context, wait_for_scripts
from tests.support.service.callers import asking, give_token
from tests.support.service.live import running
from tests.support.service.pages.accessible import assert_accessible
from tests.support.service.webhooks import Receiver, deliver

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def test_who_is_let_in_follows_from_who_was_and_the_settings() -> None:
    named = Caller("ada", "default", frozenset({Scope.READ}), "0" * 12)
    assert door_of(ANYBODY, Access.AUTO) is Door.THIS_MACHINE
    assert door_of(ANYBODY, Access.OPEN) is Door.OPEN
    assert door_of(named, Access.AUTO) is Door.TOKENS


def test_tokens_that_have_ended_stand_apart_the_newest_first(sqlite_database: Database) -> None:
    with sqlite_database.writing() as session:
        for number, name in enumerate(("old", "short", "valid")):
            made = NOW + timedelta(seconds=number)
            ends = made + timedelta(hours=1) if name == "short" else None
            scopes = {Scope.READ}
            create_token(session, name, project="default", scopes=scopes, expires_at=ends, now=made)
        revoke_token(session, "old", now=NOW + timedelta(minutes=1))
    with sqlite_database.reading() as session:
        found = tokens_of(TokenRepository(session).all(), NOW + timedelta(hours=2))
    assert [token.name for token in found.valid] == ["valid"]
    assert [(token.name, state) for token, state in found.ended] == [
        ("short", TokenState.EXPIRED),
        ("old", TokenState.REVOKED),
    ]


def test_the_end_of_a_token_says_that_it_is_in_utc(sqlite_database: Database) -> None:
    now, ends = datetime.now(UTC), datetime(2999, 3, 1, 0, 30, 0, tzinfo=UTC)
    scopes = {Scope.ADMIN}
    with sqlite_database.writing() as session:
        token = create_token(session, "ada", project="default", scopes=scopes, expires_at=ends, now=now)
    with asking(sqlite_database) as service, service.client(str(token)) as client:
        page = client.get("/settings").text
    assert page.count("2999-03-01 00:30:00 UTC") == 1
    assert page.count("2999") == 1


def test_a_projects_quotas_are_told_with_what_is_taken_of_them() -> None:
    project = Project(name="vision", max_running_jobs=2, max_device_hours=100.0, max_stored_bytes=0)
    row = project_row(project, Usage(2, 7, 12.345, 4_200_000_000))
    assert (row.running.used, row.running.limit, row.running.is_spent) == ("2", "2", True)
    assert (row.queued.used, row.queued.limit) == ("7", None)
    assert (row.hours.used, row.hours.limit, row.hours.share) == ("12.35", "100", 0.12345)
    assert (row.stored.used, row.stored.is_spent) == ("4.2 GB", True)
    assert [size(num_bytes) for num_bytes in (0, 999, 999_999, 5e11)] == ["0 B", "999 B", "1 MB", "500 GB"]


def test_each_sees_what_its_token_allows(sqlite_database: Database) -> None:
    read = give_token(sqlite_database, "reader", Scope.READ, project="ours")
    submit = give_token(sqlite_database, "worker-bee", Scope.SUBMIT, project="ours")
    admin = give_token(sqlite_database, "root", Scope.ADMIN)
    give_token(sqlite_database, "stranger", Scope.READ, project="theirs")
    with sqlite_database.writing() as session:
        for project in ("ours", "theirs"):
            add_webhook(
                session,
                project=project,
                job_id=None,
                url=f"https://hooks.example.org/{project}?<b>",
                kinds=["job.state"],
                secret=new_secret(),
                owner=None,
                now=NOW,
            )
    with asking(sqlite_database) as service:
        pages = {}
        for name, token in (("read", read), ("submit", submit), ("admin", admin)):
            with service.client(token) as http:
                answer = http.get("/settings")
                assert answer.status_code == 200
                pages[name] = answer.text
    for name in ("read", "submit"):
        assert "stranger" not in pages[name]
        assert "theirs" not in pages[name]
        assert "root" not in pages[name]
        assert "New token" not in pages[name]
        assert "New project" not in pages[name]
    assert "data-remove" not in pages["read"]
    assert "New webhook" not in pages["read"]
    assert "https://hooks.example.org/..." in pages["read"]
    assert "ours?" not in pages["read"]
    assert "https://hooks.example.org/ours?&lt;b&gt;" in pages["submit"]
    assert "data-remove" in pages["submit"]
    assert all(name in pages["admin"] for name in ("reader", "worker-bee", "stranger", "theirs", "New project"))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


def test_the_first_token_closes_the_doors_and_opens_them_to_whoever_has_it(
    page: Page, sqlite_database: Database
) -> None:
    page.goto("/settings")
    expect(page.get_by_text("Anybody on this machine may do everything here")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Make the first token").click()
    assert_accessible(page)
    making = page.get_by_role("dialog", name="Make a token")
    making.get_by_role("textbox", name="Name").fill("ada")
    expect(making.get_by_role("checkbox", name="admin")).to_be_checked()
    making.get_by_role("button", name="Make token").click()
    made = page.get_by_role("dialog", name="Token ada")
    expect(made.locator("#new-token")).to_contain_text("shampoo_")
    text = made.locator("#new-token").inner_text()
    with sqlite_database.reading() as session:
        token = TokenRepository(session).named("ada")
        assert token is not None
        assert token.expires_at is not None
        assert token.scopes == ["admin"]
    made.get_by_role("button", name="I have kept it").click()
    page.wait_for_url("**/login?next=/settings")
    page.get_by_label("Token").fill(text)
    page.keyboard.press("Enter")
    page.wait_for_url("**/settings")
    expect(page.locator("#tokens")).to_contain_text("ada")
    assert text not in page.content()


def test_whoever_looks_after_the_service_makes_and_ends_tokens_and_sets_quotas(
    browser: Browser, sqlite_database: Database
) -> None:
    root = give_token(sqlite_database, "root", Scope.ADMIN)
    with asking(sqlite_database) as service:
        context = open_context(browser, base_url=service.url)
        watched = Watched(context.new_page())
        page = watched.page
        page.goto("/settings")
        page.get_by_label("Token").fill(root)
        page.keyboard.press("Enter")
        wait_for_scripts(page, page.get_by_role("heading", level=1, name="Settings"))

        page.get_by_role("button", name="New project").click()
        project = page.get_by_role("dialog", name="Make a project")
        project.get_by_label("Name").fill("vision")
        project.get_by_label("Jobs that run at once").fill("2")
        project.get_by_role("button", name="Make project").click()
        expect(page.get_by_role("status")).to_have_text("Project vision is made. Tokens of it can be made now.")
        row = page.locator("#project-vision")
        expect(row).to_contain_text("of 2")

        row.get_by_role("button", name="Change the quotas of vision").click()
        quotas = page.get_by_role("dialog", name="Quotas of vision")
        expect(quotas.get_by_label("Jobs that run at once")).to_have_value("2")
        quotas.get_by_label("Jobs that run at once").fill("")
        quotas.get_by_label("Stored, in GB").fill("1.5")
        quotas.get_by_role("button", name="Change quotas").click()
        expect(row).to_contain_text("of 1.5 GB")
        with sqlite_database.reading() as session:
            stored = ProjectRepository(session).find("vision")
            assert stored is not None
            assert (stored.max_running_jobs, stored.max_stored_bytes) == (None, 1_500_000_000)

        page.get_by_role("button", name="New token").click()
        making = page.get_by_role("dialog", name="Make a token")
        assert_accessible(page)
        expect(making.get_by_role("checkbox", name="code")).to_have_count(0)  # root has it not, and cannot give it
        making.get_by_role("textbox", name="Name").fill("root")
        making.get_by_role("combobox", name="Project").select_option("vision")
        making.get_by_role("combobox", name="Ends").select_option("never")
        making.get_by_role("button", name="Make token").click()
        expect(making.get_by_role("alert")).to_contain_text("is called 'root'")
        making.get_by_role("textbox", name="Name").fill("bo")
        making.get_by_role("button", name="Make token").click()
        made = page.get_by_role("dialog", name="Token bo")
        expect(made).to_be_visible()
        made.get_by_role("button", name="I have kept it").click()
        with sqlite_database.reading() as session:
            token = TokenRepository(session).named("bo")
            assert token is not None
            assert (token.project, token.scopes, token.expires_at) == ("vision", ["submit"], None)

        page.get_by_role("button", name="Revoke token bo").click()
        asked = page.get_by_role("dialog", name="Revoke token bo?")
        asked.get_by_role("button", name="Keep it").click()
        expect(asked).to_be_hidden()
        page.get_by_role("button", name="Revoke token bo").click()
        asked.get_by_role("button", name="Revoke token", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Token bo is revoked.")
        expect(page.locator(f"#token-{token.prefix}")).to_have_count(0)
        expect(page.locator("#tokens")).to_contain_text("1 that have ended")

        page.get_by_role("button", name="Revoke token root").click()
        expect(page.get_by_text("It is the token that you are logged in with.")).to_be_visible()
        errors = [text for text in watched.errors if "409" not in text]  # the name that was taken
        assert errors == []
        context.close()


def test_a_webhook_is_made_tried_out_and_removed(
    browser: Browser, sqlite_database: Database, receiver: Receiver
) -> None:
    with running(sqlite_database, webhook_private_addresses=True) as address:
        context = open_context(browser, base_url=address, width=390)
        watched = Watched(context.new_page())
        page = watched.page
        page.goto("/settings")
        page.get_by_role("button", name="New webhook").click()
        making = page.get_by_role("dialog", name="Make a webhook")
        making.get_by_label("Address").fill(receiver.url)
        making.get_by_role("checkbox", name="trial.state").check()
        making.get_by_role("button", name="Make webhook").click()
        made = page.get_by_role("dialog", name="The webhook is made")
        expect(made.locator("#new-secret")).to_contain_text("whsec_")
        secret = made.locator("#new-secret").inner_text()
        made.get_by_role("button", name="I have kept it").click()
        with sqlite_database.reading() as session:
            (webhook,) = WebhookRepository(session).page(project=None, limit=9)
        assert (webhook.secret, webhook.kinds) == (secret, ["job.state", "job.recommendation", "trial.state"])
        row = page.locator(f"#{webhook.id}")
        expect(row).to_contain_text("of all jobs of the project")
        expect(page.locator("#webhooks")).to_contain_text("none is alive: they wait")

        row.get_by_role("button", name="Send a test to").click()
        messages = page.get_by_role("dialog", name="Messages")
        expect(messages.locator("li")).to_contain_text("not sent yet")
        assert deliver(sqlite_database, allows_private=True) == 1
        expect(messages.locator("li")).to_contain_text("answered 200")
        assert_accessible(page)
        messages.get_by_role("button", name="Send again").click()
        expect(messages.locator("li")).to_contain_text("waiting")
        messages.get_by_role("button", name="Close").click()

        row.get_by_role("button", name="Remove the webhook to").click()
        asked = page.get_by_role("dialog", name="Remove this webhook?")
        expect(asked).to_contain_text(receiver.url)
        assert_accessible(page)
        asked.get_by_role("button", name="Remove webhook").click()
        expect(page.get_by_role("status")).to_have_text("The webhook is removed.")
        expect(row).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        watched.check(address)
        context.close()


@pytest.mark.parametrize("width", [1280, 768, 390])
def test_a_webhook_that_is_off_says_why_in_whole_words(page: Page, sqlite_database: Database, width: int) -> None:
    with sqlite_database.writing() as session:
        webhook = add_webhook(
            session,
            project=DEFAULT_PROJECT,
            job_id=None,
            url="https://hooks.example.org/a-rather-long-path/of-somebody?token=0123456789abcdef",
            kinds=["job.state", "job.recommendation"],
            secret=new_secret(),
            owner=None,
            now=NOW,
        )
        webhook.disabled_at = NOW
        webhook.disabled_because = (
            "30 requests in a row failed, the last for: ConnectError: All connection attempts failed"
        )
    page.set_viewport_size({"width": width, "height": 900})
    page.goto("/settings")
    table = page.locator("#webhooks .scroll")
    expect(table).to_contain_text("All connection attempts failed")
    assert table.evaluate("table => table.scrollWidth - table.clientWidth") == 0
    assert table.locator("td[data-label=State]").evaluate("cell => cell.clientWidth") > 100
