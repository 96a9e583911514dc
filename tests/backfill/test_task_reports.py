"""Tasks tell the driver how far they are, and whether their breaker is open."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attrs import asdict, evolve

from tests.backfill.plans import arrow, worker_plan
from tests.golden_texts import Golden
from tests.pipeline.gates import DEADLINE_S
from tests.waiting import wait_until
from window_consumer.engine.guards.breaker_state import BreakerNews, BreakerState
from window_consumer.spark.backfill.task import BackfillTask
from window_consumer.spark.backfill.task_reports import Mailbox, Reporter, TaskReport
from window_consumer.spark.commands.backfill_progress import in_words


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    opened = Mailbox.open("127.0.0.1")
    yield opened
    opened.close()


def test_a_task_tells_how_far_it_is_and_that_its_breaker_is_open(
    mailbox: Mailbox, tmp_path: Path
) -> None:
    there = tmp_path / "there again"
    rows = [(n % 3, n, b"k%d" % n, str(there).encode(), None) for n in range(60)]
    rows.sort()
    breaker = "breaker: {cool_down: 100ms, min_calls: 5}, retry: {attempts: 2, backoff: 10ms..20ms}"
    plan = evolve(worker_plan(tmp_path, "outage", breaker), driver=mailbox.address)

    def reported() -> TaskReport | None:
        return next(iter(mailbox.reports()), None)

    def is_held_up() -> bool:
        report = reported()
        return report is not None and report.is_held_up

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: list(BackfillTask.of(plan)(arrow(rows))))
        wait_until(is_held_up, DEADLINE_S, "it tells of its breaker")
        open_ = reported()
        there.touch()
        found = [row for batch in running.result(DEADLINE_S) for row in batch.to_pylist()]
    assert open_ is not None
    assert (open_.task, open_.partitions) == (0, (0, 1, 2))
    assert open_.done < 60
    ended = reported()
    assert ended is not None
    assert (ended.done, ended.is_held_up) == (len(found), False)


def test_the_last_attempt_of_a_task_counts(mailbox: Mailbox) -> None:
    for task, attempt, done in ((0, 0, 7), (1, 0, 5), (0, 1, 2), (0, 0, 9)):
        reporter = Reporter(mailbox.address, task, attempt)
        reporter.report(done, [2, 0], None)
        reporter.close()
    wait_until(lambda: len(mailbox.reports()) == 2, DEADLINE_S, "all are here")
    assert sorted((each.task, each.attempt, each.done) for each in mailbox.reports()) == [
        (0, 1, 2),
        (1, 0, 5),
    ]


def test_what_no_task_of_this_chunk_has_sent_is_ignored(mailbox: Mailbox) -> None:
    good: dict[str, Any] = {**asdict(TaskReport(0, 0, 1)), "token": mailbox.address.token}
    bad = [
        b"\xff",
        b"[1]",
        b"[" * 4000,
        json.dumps({**good, "token": "of another chunk"}).encode(),
        json.dumps({**good, "breaker": "ajar"}).encode(),
        json.dumps({**good, "done": None}).encode(),
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for data in (*bad, json.dumps({**good, "task": 3}).encode()):
            stranger.sendto(data, (mailbox.address.host, mailbox.address.port))
    wait_until(lambda: bool(mailbox.reports()), DEADLINE_S, "the good one is here")
    assert [each.task for each in mailbox.reports()] == [3]


def test_what_a_breaker_is_open_for_crosses_no_network(mailbox: Mailbox) -> None:
    news = BreakerNews(BreakerState.OPEN, "most failed, the last one with ValueError: DE12")
    here, elsewhere = mailbox.address, evolve(mailbox.address, host="localhost")
    for task, address in enumerate((here, elsewhere)):
        reporter = Reporter(address, task, 0)
        reporter.report(0, [], news)
        reporter.close()
    wait_until(lambda: len(mailbox.reports()) == 2, DEADLINE_S, "both are here")
    assert {each.task: each.why for each in mailbox.reports()} == {0: news.why, 1: ""}


def test_a_driver_that_is_away_is_no_trouble() -> None:
    closed = Mailbox.open("127.0.0.1")
    closed.close()
    reporter = Reporter(closed.address, 0, 0)
    for _ in range(3):
        reporter.report(1, [0], None, at_once=True)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as driver:
        driver.bind((closed.address.host, closed.address.port))
        driver.settimeout(DEADLINE_S)
        for _ in range(2):  # the first one gets the refusal of the last
            reporter.report(4, [0], None, at_once=True)
        assert json.loads(driver.recv(8192))["done"] == 4
    reporter.close()


def test_a_driver_whose_name_is_unknown_gets_no_reports(mailbox: Mailbox) -> None:
    reporter = Reporter(evolve(mailbox.address, host="no.such.host.invalid"), 0, 0)
    reporter.report(1, [0], None, at_once=True)
    reporter.close()
    assert mailbox.reports() == []


def test_progress_within_a_chunk_and_open_breakers_are_shown(golden: Golden) -> None:
    from window_consumer.spark.backfill import backlog  # noqa: PLC0415 - needs pyspark, and takes long

    progress = backlog.BackfillProgress(
        total=1000, done=200, failed=0, seconds=10.0, here=200, tasks=(1, 4), running=300, held_up=2
    )
    golden(in_words(progress))
