"""The thread that asks for topics now and then."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from window_consumer.model.errors import BrokerUnavailableError, RunError
from window_consumer.model.protocols import TopicFacts
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.topic_watch import LogEnds, TopicNews, TopicWatch

DEADLINE_S = 30.0
PAUSED = TopicPartition("orders", 3)


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
        away, bug, reported = (news.get(timeout=DEADLINE_S) for _ in range(3))
    finally:
        watch.stop()
    assert str(away) == "nobody there"
    assert isinstance(bug, RunError)
    assert "KeyError: 'orders'" in str(bug)
    assert reported == TopicNews(facts)


def test_it_asks_where_the_logs_of_paused_partitions_end_and_of_no_others() -> None:
    news: SimpleQueue[Any] = SimpleQueue()
    asked: list[Sequence[TopicPartition]] = []

    def ends(names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        asked.append(names)
        return dict.fromkeys(names, 7)

    watch = TopicWatch("work", dict, news, every_s=0.01, ask_ends=ends)
    watch.start()
    try:
        assert news.get(timeout=DEADLINE_S) == TopicNews({})
        assert asked == []
        watch.set_paused([PAUSED])
        while not isinstance(reported := news.get(timeout=DEADLINE_S), LogEnds):
            pass
    finally:
        watch.end(DEADLINE_S)
    assert reported == LogEnds({PAUSED: 7})
    assert {name for names in asked for name in names} == {PAUSED}


def test_its_end_waits_for_an_answer_that_is_on_its_way() -> None:
    asked, answered = threading.Event(), threading.Event()
    news: SimpleQueue[Any] = SimpleQueue()

    def ask() -> Mapping[str, TopicFacts]:
        asked.set()
        assert answered.wait(DEADLINE_S)
        return {}

    watch = TopicWatch("work", ask, news, every_s=0.01)
    watch.start()
    assert asked.wait(DEADLINE_S)
    watch.end(0.0)  # returns, or there is never an answer
    ending = threading.Thread(target=watch.end, args=(DEADLINE_S,), daemon=True)
    ending.start()
    ending.join(0.05)
    assert ending.is_alive()
    answered.set()
    ending.join(DEADLINE_S)
    assert news.get_nowait() == TopicNews({})


def test_one_that_was_never_started_ends_at_once() -> None:
    TopicWatch("work", dict, SimpleQueue()).end(DEADLINE_S)
