"""Topics that match a pattern and cannot be made ready: the others are read as ever."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.logged import lines_of
from tests.testing.shops import config
from window_consumer import App, Record
from window_consumer.model.errors import ConfigError
from window_consumer.model.log_events import LogEvent
from window_consumer.testing import DONE, TestApp

LONG = "orders-" + "x" * 236
"""Kafka takes this name, but none that is longer by the group and the ending of a copy's topic."""


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    with caplog.at_level(logging.INFO, "window_consumer"):
        yield Lines(caplog)


class Lines:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, topic: str) -> list[tuple[LogEvent, str]]:
        """Return what was logged of a topic: the event, and the line."""
        return [
            (event, record.getMessage())
            for event in (LogEvent.TOPIC_REFUSED, LogEvent.TOPIC_RESTORED)
            for record in lines_of(self._caplog, event)
            if topic in (record.args or ())
        ]


def orders(
    there: Mapping[str, int], worker: Mapping[str, Any] | None = None, *, create: bool = True
) -> TestApp:
    app = App("shop")

    @app.handler(patterns=["^orders-"], group="shop")
    def charge(_order: Record) -> None: ...

    rest = {"topics": {"create": create}}
    return TestApp(app, {**config(charge=worker or {}), **rest}, topics=there)


def read_to_the_end(wc_app: TestApp, topic: str) -> bool:
    group = wc_app.broker.group("shop")
    logs = wc_app.broker.topics.by_name[topic].logs
    return all(group.committed(log.name).next_offset == log.end for log in logs)


def test_a_topic_whose_ladder_cannot_be_named_hides_no_other(lines: Lines) -> None:
    with orders({"orders-eu": 2}) as wc_app:
        wc_app.create_topic(LONG)
        wc_app.create_topic("orders-us")
        assert wc_app.send("orders-us", 1).outcome is DONE
        assert wc_app.send("orders-eu", 1).outcome is DONE
        wc_app.broker.remake_topic("orders-eu", 2)
        for number in range(10):
            wc_app.broker.produce("orders-eu", number % 2, None, b"%d" % number)
        wc_app.create_topic("orders-uk")
        wc_app.run_until_idle()
        wc_app.advance(1)
        assert read_to_the_end(wc_app, "orders-eu")
    assert len(lines.of(LONG)) == 1
    assert "249" in lines.of(LONG)[0][1]


def test_a_topic_whose_ladder_may_not_be_made_hides_no_other(lines: Lines) -> None:
    with orders({"orders-eu": 2, "shop.orders-eu.dlq": 2}, create=False) as wc_app:
        wc_app.create_topic("orders-us")
        wc_app.broker.create_topic("shop.orders-uk.dlq", 2)
        wc_app.create_topic("orders-uk", 2)
        assert wc_app.send("orders-uk", 1).outcome is DONE
        assert len(lines.of("orders-us")) == 1
        wc_app.broker.create_topic("shop.orders-us.dlq")
        wc_app.create_topic("other")
        assert wc_app.send("orders-us", 1).outcome is DONE
    events = [event for event, _ in lines.of("orders-us")]
    assert events == [LogEvent.TOPIC_REFUSED, LogEvent.TOPIC_RESTORED]


def test_a_source_whose_ladder_may_not_grow_with_it_hides_no_other(lines: Lines) -> None:
    there = {"orders-eu": 2, "shop.orders-eu.dlq": 2, "shop.orders-eu.retry.10s": 2}
    with orders(there, {"retry": {"levels": ["10s"]}}, create=False) as wc_app:
        wc_app.broker.add_partitions("orders-eu", 3)
        for name in ("shop.orders-uk.dlq", "shop.orders-uk.retry.10s"):
            wc_app.broker.create_topic(name, 1)
        wc_app.create_topic("orders-uk", 1)
        assert wc_app.send("orders-uk", 1).outcome is DONE
        assert wc_app.send("orders-eu", 1, partition=2).outcome is DONE
        assert len(lines.of("orders-eu")) == 1
        wc_app.broker.add_partitions("shop.orders-eu.retry.10s", 3)
        wc_app.create_topic("other")
    assert lines.of("orders-eu")[-1][0] == LogEvent.TOPIC_RESTORED


def test_a_start_goes_on_with_the_topics_that_can_be_read(lines: Lines) -> None:
    with orders({"orders-eu": 1, LONG: 1}) as wc_app:
        assert wc_app.send("orders-eu", 1).outcome is DONE
        wc_app.create_topic("orders-us")
    assert len(lines.of(LONG)) == 1


def test_a_start_without_any_topic_that_can_be_read_says_why() -> None:
    with pytest.raises(ConfigError, match="249"), orders({LONG: 1}):
        pass


def test_a_pattern_without_a_match_waits_for_one() -> None:
    with orders({"other": 1}) as wc_app:
        wc_app.create_topic("orders-us")
        assert wc_app.send("orders-us", 1).outcome is DONE
