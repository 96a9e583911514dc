from __future__ import annotations

from collections.abc import Callable

from tests.golden_texts import Golden
from window_consumer.config import LoadedConfig

Load = Callable[..., LoadedConfig]
Refuse = Callable[..., str]
WorkerText = Callable[..., str]


class InvalidOrderError(Exception):
    pass


def test_decorator_then_file_then_override_win_in_this_order(
    loaded: Load, worker_text: WorkerText
) -> None:
    result = loaded(
        worker_text("concurrency: 2", "memory: 64MiB"),
        "workers.charge.memory=128MiB",
        handlers={"charge": {"concurrency": 1, "memory": "32MiB", "stop_timeout": "1s"}},
    )
    worker = result.config.workers["charge"]
    assert (worker.concurrency, worker.memory, worker.stop_timeout) == (2, 2**27, 1.0)
    assert result.where(("workers", "charge", "concurrency")) == "workers.yaml:7"
    assert result.where(("workers", "charge", "stop_timeout")) == "@app.handler charge"
    assert result.where(("workers", "charge", "memory")) == "--set workers.charge.memory"


def test_mappings_are_joined_and_lists_replaced(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(
        worker_text("retry: {attempts: 5, fatal: [a.B]}", "kafka: {x: 1}"),
        handlers={
            "charge": {
                "retry": {"attempts": 2, "backoff": "1s..2s", "fatal": ["c.D", "e.F"]},
                "window": {"cells": 8},
                "kafka": {"x": 2, "y": 3, "consumer": {"z": 4}},
            }
        },
    )
    worker = result.config.workers["charge"]
    assert (worker.retry.attempts, worker.retry.backoff) == (5, (1.0, 2.0))
    assert worker.retry.fatal == ("a.B",)
    assert worker.window.cells == 8
    assert (worker.kafka.common, worker.kafka.consumer) == ({"x": 1, "y": 3}, {"z": 4})
    assert result.where(("workers", "charge", "retry", "backoff")) == "@app.handler charge"
    assert result.where(("workers", "charge", "retry", "fatal", 1)) == "workers.yaml:7"
    assert result.where(("workers", "charge", "window", "cells")) == "@app.handler charge"


def test_patterns_in_the_file_replace_topics_of_the_decorator(loaded: Load) -> None:
    result = loaded(
        "workers: {charge: {patterns: ['^o']}}",
        handlers={"charge": {"topics": ["a"], "group": "g"}},
    )
    worker = result.config.workers["charge"]
    assert (worker.topics, worker.patterns) == ((), ("^o",))


def test_topics_in_an_override_replace_patterns_of_the_file(loaded: Load) -> None:
    result = loaded("workers: {charge: {patterns: ['^o'], group: g}}", "workers.charge.topics=[a]")
    worker = result.config.workers["charge"]
    assert (worker.topics, worker.patterns) == (("a",), ())


def test_a_worker_runs_the_handler_of_its_own_name_unless_it_names_one(loaded: Load) -> None:
    handlers = {
        "charge": {"topics": ["orders"], "group": "one"},
        "refund": {"topics": ["refunds"], "group": "two"},
    }
    workers = loaded(
        "workers:\n  charge:\n  other: {handler: refund}\n", handlers=handlers
    ).config.workers
    assert (workers["charge"].handler, workers["charge"].group) == ("charge", "one")
    assert (workers["other"].handler, workers["other"].group) == ("refund", "two")


def test_the_handler_that_an_override_names_gives_the_defaults(loaded: Load) -> None:
    result = loaded(
        "workers: {charge: {}}",
        "workers.charge.handler=refund",
        handlers={"refund": {"topics": ["refunds"], "group": "two"}},
    )
    assert result.config.workers["charge"].topics == ("refunds",)


def test_workers_keep_the_order_of_the_file(loaded: Load) -> None:
    text = "workers:\n" + "".join(f"  {n}: {{topics: [{n}], group: g}}\n" for n in "cab")
    handlers = {"a": {"concurrency": 2}, "b": {"concurrency": 3}}
    assert list(loaded(text, "workers.b.memory=1GiB", handlers=handlers).config.workers) == [*"cab"]


def test_a_handler_without_a_worker_makes_none(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(worker_text(), handlers={"refund": {"topics": ["r"], "group": "r"}})
    assert list(result.config.workers) == ["charge"]


def test_decorators_may_give_classes_tuples_and_none_for_not_given(
    loaded: Load, worker_text: WorkerText
) -> None:
    result = loaded(
        worker_text("retry: {retryable: [KeyError]}"),
        handlers={"charge": {"concurrency": None, "retry": {"fatal": (InvalidOrderError, "a.B")}}},
    )
    worker = result.config.workers["charge"]
    assert worker.retry.fatal == (InvalidOrderError, "a.B")
    assert worker.retry.retryable == ("KeyError",)
    assert worker.concurrency == 16


def test_a_wrong_default_is_reported_with_its_decorator(
    refused: Refuse, worker_text: WorkerText
) -> None:
    message = refused(
        worker_text(),
        handlers={"charge": {"concurency": 5, "memory": 5, "retry": {"fatal": [int]}}},
    )
    keys = [line.split(": ")[:2] for line in message.splitlines()]
    assert sorted(keys) == [
        ["@app.handler charge", "workers.charge.concurency"],
        ["@app.handler charge", "workers.charge.memory"],
        ["@app.handler charge", "workers.charge.retry.fatal[0]"],
    ]


def test_a_misspelt_handler_is_reported_where_its_decorator_would_give_what_is_missing(
    refused: Callable[..., str], golden: Golden
) -> None:
    handlers = {"charge": {"topics": ["orders"], "group": "shop"}}
    head = "kafka: {bootstrap.servers: h}\nworkers:\n"
    missing = "group: is missing: a group name of letters, digits, dots, dashes and underscores"
    for worker in ("chrge: {}", "c: {handler: chrge}", "c: {handler: [charge2, chrge]}"):
        said = refused(f"{head}  {worker}\n", handlers=handlers)
        assert missing in said
        golden(said)
    said = refused(f"{head}  post: {{}}\n", handlers=handlers)
    golden(said)
    said = refused(f"{head}  post: {{}}\n")
    assert f"{missing}\n" in said


def test_references_in_decorators_are_not_filled_in(loaded: Load, worker_text: WorkerText) -> None:
    result = loaded(worker_text(), handlers={"charge": {"kafka": {"a": "${A}"}}})
    assert result.config.workers["charge"].kafka.common == {"a": "${A}"}


def test_an_empty_section_leaves_the_defaults_of_the_decorator(loaded: Load) -> None:
    result = loaded(
        "workers:\n  charge:\n    retry:\n",
        handlers={"charge": {"topics": ["t"], "group": "g", "retry": {"attempts": 9}}},
    )
    assert result.config.workers["charge"].retry.attempts == 9
