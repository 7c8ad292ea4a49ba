"""Messages to webhooks, sent as a worker does, until none is left whose time has come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from service.clock import Clock, utc_now
from service.store.session import Database
from service.webhooks.delivering import Sending
from tests.support import event_loop


def deliver(database: Database, *, allows_private: bool, clock: Clock = utc_now) -> int:
    """Sends what webhooks are to be told by now, and notes what they answer; how many messages that were."""

    async def send_all() -> int:
        with ThreadPoolExecutor(1) as threads:
            sending = Sending(database, threads, allows_private=allows_private, clock=clock)
            num_sent = 0
            while (num_begun := await sending.look()) or sending.is_busy:
                num_sent += num_begun
                await sending.wait()
            return num_sent

    return event_loop.run(send_all())
