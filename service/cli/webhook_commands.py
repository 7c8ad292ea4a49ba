"""Commands about webhooks: add, list, remove, and what they were sent."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.asking import DEFAULT_URL, Token, Url, client_at, say

app = typer.Typer(help="Has an address of yours told what happens to jobs.", no_args_is_help=True)

WebhookId = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id.")]


@app.command()
def add(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Where messages are posted to: https://...")],
    job: Annotated[str | None, typer.Option(help="Of this job alone, from its beginning; else of all to come.")] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Of events, e.g. trial.state; job.state and job.recommendation if none.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Adds a webhook and prints its secret, which is shown this once."""
    with client_at(url, token) as client:
        made = client.add_webhook(address, kinds=kind or (), job_id=job)
        say(f"webhook {made.id} is told {', '.join(made.kinds)}; messages are signed with {made.secret}")


@app.command("list")
def list_(url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Lists the webhooks of your project."""
    with client_at(url, token) as client:
        for webhook in client.webhooks():
            state = "on" if webhook.disabled_at is None else f"disabled: {webhook.disabled_because}"
            say(f"{webhook.id}  {webhook.url}  {webhook.job_id or 'all jobs'}  {', '.join(webhook.kinds)}  {state}")


@app.command()
def sent(webhook: WebhookId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Lists what a webhook was sent and what was answered, newest first."""
    with client_at(url, token) as client:
        for delivery in client.deliveries(webhook):
            answer = delivery.status if delivery.status is not None else (delivery.answer or "no answer yet")
            say(f"{delivery.id}  {delivery.kind}  {delivery.state}  attempts: {delivery.attempts}  {answer}")


@app.command()
def redeliver(
    webhook: WebhookId,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Sends a message again."""
    with client_at(url, token) as client:
        say(f"message {client.redeliver(webhook, message).id} waits to be sent")


@app.command()
def enable(webhook: WebhookId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Goes on with a webhook that was disabled after many failures."""
    with client_at(url, token) as client:
        say(f"webhook {client.enable_webhook(webhook).id} goes on")


@app.command()
def remove(webhook: WebhookId, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Removes a webhook, with what waits to be sent to it."""
    with client_at(url, token) as client:
        client.remove_webhook(webhook)
        say(f"webhook {webhook} is removed")
