"""Messages to a rank about its trials while it trains, in whatever order they come."""

from __future__ import annotations

import threading

from service.scheduler.ranks.rank_consumer import GroupConsumer
from tests.support.waiting import PATIENCE_SECONDS


def test_a_rank_waits_until_its_last_measurement_was_taken() -> None:
    consumer = GroupConsumer()
    consumer.begin(1)
    assert consumer.wait()  # nothing was given yet
    consumer.give()
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(consumer.wait()))
    waiting.start()
    waiting.join(timeout=0.1)
    assert waiting.is_alive()
    consumer.take(1, 1)
    waiting.join(PATIENCE_SECONDS)
    assert answers == [True]
    consumer.give()
    consumer.give_up(1)
    assert not consumer.wait()


def test_a_message_about_another_trial_changes_nothing() -> None:
    consumer = GroupConsumer()
    consumer.begin(1)
    consumer.give()
    consumer.give_up(1)
    assert consumer.has_given_up()
    consumer.give_up(2)  # overtakes the start of the second trial
    consumer.begin(2)
    assert consumer.has_given_up()
    consumer.begin(3)
    assert not consumer.has_given_up()
    assert consumer.wait()
    consumer.give()
    consumer.take(3, 1)
    assert consumer.wait()
