"""The keys handler, routes, otherwise, ttl and on_expired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig, TopicNames
from window_consumer.config.sections.ttl import HeaderTtl

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


def test_a_worker_may_run_several_handlers_in_their_order(
    loaded: Load, worker_text: WorkerText
) -> None:
    worker = loaded(worker_text("handler: [paid, refunded]")).config.workers["charge"]
    assert worker.handlers == ("paid", "refunded")
    assert loaded(worker_text()).config.workers["charge"].handlers == ("charge",)


def test_conditions_stand_in_the_file(loaded: Load, worker_text: WorkerText) -> None:
    text = worker_text("handler: [a, b]", "routes:", "  a: header('type') in ['x', \"y\"]")
    worker = loaded(text).config.workers["charge"]
    assert {name: str(each) for name, each in worker.routes.items()} == {
        "a": "header('type') in ['x', 'y']"
    }
    assert worker.otherwise == "dead_letter"


def test_conditions_may_come_from_set(loaded: Load, worker_text: WorkerText) -> None:
    override = "workers.charge.routes={charge: \"key == 'a'\"}"
    worker = loaded(worker_text(), override).config.workers["charge"]
    assert str(worker.routes["charge"]) == "key == 'a'"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["handler: []"], "workers.yaml:7: workers.charge.handler: the list is empty"),
        (
            ["handler: [a, a]"],
            "workers.yaml:7: workers.charge.handler[1]: 'a' appears twice in the list",
        ),
        (["handler: [a, 5]"], "workers.yaml:7: workers.charge.handler[1]: 5 is not the name"),
        (["handler: {a: b}"], "workers.yaml:7: workers.charge.handler: a mapping is not the name"),
        (["routes: key"], "workers.yaml:7: workers.charge.routes: 'key' is not a mapping"),
        (
            ["routes:", "  charge: 5"],
            "workers.yaml:8: workers.charge.routes.charge: 5 is not a condition such as",
        ),
        (
            ["routes:", "  charge: kez == 'a'"],
            "workers.yaml:8: workers.charge.routes.charge: there is no 'kez'; did you mean key?",
        ),
        (
            ["routes:", "  charge: timestamp > 'soon'"],
            "workers.yaml:8: workers.charge.routes.charge: 'soon' is not a time such as",
        ),
        (
            ["handler: [a, b]", "routes:", "  c: key == 'a'"],
            "workers.yaml:9: workers.charge.routes.c: is none of the worker's handlers, a, b",
        ),
        (["otherwise: ignore"], "workers.yaml:7: workers.charge.otherwise: 'ignore' is not one of"),
        (["ttl: 30"], "workers.yaml:7: workers.charge.ttl: 30 is not a duration"),
        (["ttl: 0"], "workers.yaml:7: workers.charge.ttl: 0 is not a duration"),
        (["ttl: [30s]"], "workers.yaml:7: workers.charge.ttl: a list is not a duration such as"),
        (
            ["ttl:", "  header: ttl", "  unit: sec", "  format: text"],
            "workers.yaml:9: workers.charge.ttl.unit: 'sec' is not one of ms, s, m, h or d",
        ),
        (
            ["ttl: {header: ttl, unit: s}"],
            "workers.yaml:7: workers.charge.ttl.format: is missing: one of text or int64be",
        ),
        (
            ["ttl:", "  headr: ttl", "  unit: s", "  format: text"],
            "workers.yaml:8: workers.charge.ttl.headr: unknown key; did you mean header?",
        ),
        (["on_expired: skip"], "workers.yaml:7: workers.charge.on_expired: 'skip' is not one of"),
    ],
)
def test_what_is_wrong_is_reported_with_file_line_and_key(
    refused: Refuse, worker_text: WorkerText, lines: list[str], message: str
) -> None:
    assert message in refused(worker_text(*lines))


def test_a_misspelt_handler_below_routes_is_recognised(
    refused: Refuse, worker_text: WorkerText, golden: Golden
) -> None:
    lines = ("handler: [paid, refunded]", "routes:", "  payd: key == 'a'")
    golden(refused(worker_text(*lines)))


@pytest.mark.parametrize(
    ("text", "ttl"),
    [
        ("ttl: 30s", 30.0),
        ("ttl: 1.5h", 5400.0),
        ("ttl: {header: ttl, unit: s, format: int64be}", HeaderTtl("ttl", "s", "int64be")),
    ],
)
def test_a_time_to_live_is_a_duration_or_a_header(
    loaded: Load, worker_text: WorkerText, text: str, ttl: Any
) -> None:
    worker = loaded(worker_text(text)).config.workers["charge"]
    assert (worker.ttl, worker.on_expired) == (ttl, "dead_letter")


SEVERAL = "workers:\n  shop:\n    handler: [paid, refunded]\n"


def test_several_decorators_give_their_defaults_together(loaded: Load) -> None:
    handlers = {
        "paid": {"topics": ["orders"], "group": "g", "retry": {"fatal": ["a.B"]}},
        "refunded": {"topics": ["orders"], "concurrency": 3, "retry": {"attempts": 2}},
    }
    worker = loaded(SEVERAL, handlers=handlers).config.workers["shop"]
    assert (worker.topics, worker.group, worker.concurrency) == (("orders",), "g", 3)
    assert (worker.retry.fatal, worker.retry.attempts) == (("a.B",), 2)


def test_decorators_that_disagree_need_the_files_word(
    refused: Refuse, loaded: Load, golden: Golden
) -> None:
    handlers = {
        "paid": {"topics": ["orders"], "group": "g", "concurrency": 3},
        "refunded": {"topics": ["refunds"], "group": "g", "concurrency": 5},
    }
    message = refused(SEVERAL, handlers=handlers)
    golden(message)
    text = f"{SEVERAL}    concurrency: 4\n    patterns: ['^orders']\n"
    worker = loaded(text, handlers=handlers).config.workers["shop"]
    assert (worker.concurrency, worker.patterns, worker.topics) == (4, ("^orders",), ())


@pytest.mark.parametrize(
    ("name", "is_copy"),
    [
        ("shop.orders.retry.10s", True),
        ("shop.orders.retry.now", True),
        ("shop.other.orders.retry.1h", True),
        ("shop.orders.dlq", False),
        ("orders", False),
        ("xshop.orders.retry.10s", False),
        ("shopxorders.retry.10s", False),
    ],
)
def test_the_own_retry_topics_are_known_by_their_names(
    loaded: Load, worker_text: WorkerText, name: str, *, is_copy: bool
) -> None:
    config = loaded(worker_text()).config
    assert TopicNames(config.workers["charge"], config.topics).is_read(name) is is_copy


def test_a_worker_cannot_be_made_to_read_its_own_retry_topics(
    refused: Refuse, golden: Golden
) -> None:
    message = refused("workers: {w: {topics: [g.orders.retry.10s], group: g}}")
    golden(message)
