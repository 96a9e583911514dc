"""The thread that asks for topics now and then."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

from window_consumer.model.errors import BrokerUnavailableError, RunError
from window_consumer.model.protocols import TopicFacts
from window_consumer.runtime.topic_watch import TopicNews, TopicWatch

PATIENCE_S = 30.0


def test_it_goes_on_asking_whatever_an_answer_was() -> None:
    news: SimpleQueue[Any] = SimpleQueue()
    facts: Mapping[str, TopicFacts] = {}
    answers = iter([BrokerUnavailableError("nobody there"), KeyError("orders")])

    def ask() -> Mapping[str, TopicFacts]:
        for error in answers:
            raise error
        return facts

    watch = TopicWatch("work", ask, news, every_s=0.01)
    watch.start()
    try:
        away, bug, told = (news.get(timeout=PATIENCE_S) for _ in range(3))
    finally:
        watch.stop()
    assert str(away) == "nobody there"
    assert isinstance(bug, RunError)
    assert "KeyError: 'orders'" in str(bug)
    assert told == TopicNews(facts)
