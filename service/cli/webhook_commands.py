"""Commands about webhooks: add, list, remove, and what they were sent."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.asking import DEFAULT_URL, AsJson, Token, Url, answer, client_at, say, say_json_list

app = typer.Typer(help="Sends the events of jobs to an address of yours.", no_args_is_help=True)

WebhookId = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id.")]


@app.command()
def add(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Where messages are posted to: https://...")],
    job: Annotated[
        str | None, typer.Option(help="Only events of this job, from its beginning; else all to come.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Kinds of events, e.g. trial.state; job.state and job.recommendation if none."),
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Adds a webhook and prints its secret, which is shown this once."""
    with client_at(url, token) as client:
        made = client.add_webhook(address, kinds=kind or (), job_id=job)
        words = f"webhook {made.id} is told {', '.join(made.kinds)}; messages are signed with {made.secret}"
        answer(made, words, as_json=as_json)


@app.command("list")
def list_(url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Lists the webhooks of your project."""
    with client_at(url, token) as client:
        if as_json:
            say_json_list(client.webhooks())
            return
        is_empty = True
        for webhook in client.webhooks():
            is_empty = False
            state = "on" if webhook.disabled_at is None else f"disabled: {webhook.disabled_because}"
            say(f"{webhook.id}  {webhook.url}  {webhook.job_id or 'all jobs'}  {', '.join(webhook.kinds)}  {state}")
        if is_empty:
            say("no webhooks", err=True)


@app.command()
def sent(webhook: WebhookId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Lists the messages sent to a webhook, with the answers, newest first."""
    with client_at(url, token) as client:
        if as_json:
            say_json_list(client.deliveries(webhook))
            return
        is_empty = True
        for delivery in client.deliveries(webhook):
            is_empty = False
            answer = delivery.status if delivery.status is not None else (delivery.answer or "no answer yet")
            say(f"{delivery.id}  {delivery.kind}  {delivery.state}  attempts: {delivery.attempts}  {answer}")
        if is_empty:
            say("it was sent nothing yet", err=True)


@app.command("test")
def send_test(webhook: WebhookId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Sends a message of the kind webhook.test; `sent` shows the answer."""
    with client_at(url, token) as client:
        made = client.test_webhook(webhook)
        answer(made, f"{made.id} is on its way: `shampoo-tuner webhook sent {webhook}`", as_json=as_json)


@app.command()
def redeliver(
    webhook: WebhookId,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Sends a message again."""
    with client_at(url, token) as client:
        again = client.redeliver(webhook, message)
        answer(again, f"message {again.id} waits to be sent", as_json=as_json)


@app.command()
def enable(webhook: WebhookId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Enables a webhook that was disabled after many failures."""
    with client_at(url, token) as client:
        enabled = client.enable_webhook(webhook)
        answer(enabled, f"webhook {enabled.id} goes on", as_json=as_json)


@app.command()
def remove(webhook: WebhookId, url: Url = DEFAULT_URL, token: Token = None, as_json: AsJson = False) -> None:
    """Removes a webhook, with the messages still to be sent to it."""
    with client_at(url, token) as client:
        client.remove_webhook(webhook)
        answer({"id": webhook}, f"webhook {webhook} is removed", as_json=as_json)
