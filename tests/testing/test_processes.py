"""Workers with child processes in TestApp: their handlers run in the test itself."""

from __future__ import annotations

import os

from tests.testing.shops import config
from window_consumer import App, PartialFailure, Record
from window_consumer.testing import DEAD_LETTERED, DONE, TestApp


def test_handlers_for_processes_run_in_the_test_wherever_they_are_defined() -> None:
    app = App("shop")
    seen: list[int] = []

    @app.handler("orders", group="shop", pool="processes", concurrency=2, retry={"attempts": 1})
    def charge(order: Record) -> None:
        if order.text() == "poison":
            raise ValueError
        seen.append(os.getpid())

    with TestApp(app, config(charge={})) as test:
        assert test.send("orders", b"one").outcome is DONE
        assert test.send("orders", b"poison").outcome is DEAD_LETTERED
    assert seen == [os.getpid()]


def test_batch_handlers_for_processes_run_in_the_test_as_well() -> None:
    app = App("shop")
    seen: list[int] = []

    @app.batch_handler("clicks", group="shop", pool="processes", retry={"attempts": 1})
    def store(records: list[Record]) -> None:
        bad = [record for record in records if record.text() == "poison"]
        seen.append(os.getpid())
        raise PartialFailure(failed=bad)

    with TestApp(app, config(store={})) as test:
        assert test.send("clicks", b"one").outcome is DONE
        assert test.send("clicks", b"poison").outcome is DEAD_LETTERED
    assert seen == [os.getpid()] * 2


def test_a_worker_that_finds_the_number_of_its_processes_runs_in_a_test_as_well() -> None:
    app = App("shop")

    @app.handler("orders", group="shop", pool="processes", concurrency="auto")
    def charge(order: Record) -> None:
        order.text()

    with TestApp(app, config(charge={})) as test:
        assert test.send("orders", b"one").outcome is DONE
