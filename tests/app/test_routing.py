"""Several handlers in one worker: what is checked before anything runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer import App, ConfigError, Record, UsageError, header
from window_consumer.plan.app_plan import PlannedWorker


def shop(*, last: Any = None) -> App:
    app = App("shop")

    @app.handler("orders", group="g", when=header("type") == "paid")
    def paid(_order: Record) -> None: ...

    @app.handler("orders", group="g", when=last)
    def refunded(_order: Record) -> None: ...

    return app


def planned(app: App, directory: Path, text: str) -> PlannedWorker:
    file = directory / "workers.yaml"
    file.write_text(f"workers:\n  shop:\n    {text}\n")
    (worker,) = app.plan(file).workers
    return worker


def refused(app: App, directory: Path, text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        planned(app, directory, text)
    return str(raised.value)


def test_handlers_are_asked_in_the_order_of_the_file(tmp_path: Path, golden: Golden) -> None:
    worker = planned(shop(last=header("type") != "x"), tmp_path, "handler: [refunded, paid]")
    for route in worker.routes:
        golden(route.in_words)
    assert worker.handler_names == "refunded,paid"
    assert worker.may_be_unroutable


def test_a_condition_of_the_file_replaces_that_of_the_decorator(
    tmp_path: Path, golden: Golden
) -> None:
    text = "handler: [paid, refunded]\n    routes: {paid: key != null}"
    worker = planned(shop(), tmp_path, text)
    for route in worker.routes:
        golden(route.in_words)
    assert not worker.may_be_unroutable


def test_a_function_may_be_a_condition(tmp_path: Path) -> None:
    def large(order: Record) -> bool:
        return len(order.value or b"") > 1000

    worker = planned(shop(last=large), tmp_path, "handler: [paid, refunded]")
    assert worker.routes[1].in_words.endswith("large(record)")


def test_a_handler_behind_one_that_takes_everything_is_refused(tmp_path: Path) -> None:
    message = refused(shop(), tmp_path, "handler: [refunded, paid]")
    assert re.search(r"workers\.yaml:3: workers\.shop\.handler: paid .*\brefunded\b", message)


def test_a_handler_that_no_worker_runs_is_an_error_still(tmp_path: Path) -> None:
    message = refused(shop(), tmp_path, "handler: [paid]")
    assert "'refunded'" in message


def test_a_name_that_no_handler_has_is_refused(tmp_path: Path) -> None:
    message = refused(shop(), tmp_path, "handler: [paid, refunded, payd]")
    assert re.search(r"workers\.yaml:3: workers\.shop: .*'payd'", message)


@pytest.mark.parametrize(
    ("text", "writes"),
    [
        ("retry: {when_spent: drop}", True),
        ("retry: {when_spent: drop}\n    otherwise: skip", False),
        ("retry: {when_spent: drop}\n    otherwise: skip\n    ttl: 30s", True),
        (
            "retry: {when_spent: drop}\n    otherwise: stop\n    ttl: 30s\n    on_expired: drop",
            False,
        ),
        ("otherwise: skip", True),
    ],
)
def test_dead_letter_topics_are_needed_where_a_record_may_go_there(
    tmp_path: Path, text: str, *, writes: bool
) -> None:
    app = shop(last=header("type") == "refunded")
    worker = planned(app, tmp_path, f"handler: [paid, refunded]\n    {text}")
    assert worker.writes_dead_letters is writes


async def ask_later(_record: Record) -> bool:
    return True


@pytest.mark.parametrize(
    ("when", "message"),
    [("header('a') == 'b'", "write header"), (17, "17"), (ask_later, "when: ask_later ")],
)
def test_what_is_no_condition_is_refused_where_it_is_written(when: Any, message: str) -> None:
    with pytest.raises(UsageError, match=rf"@app.handler charge.*{message}"):
        App("shop").handler("orders", name="charge", when=when)(lambda _record: None)
