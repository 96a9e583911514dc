"""Whoever keeps several copies of a process answers for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from window_consumer.metrics.http_server import HttpServer
from window_consumer.metrics.replica_health import ReplicasHealth
from window_consumer.runtime.replica import HttpAnswer

GAUGE = '# HELP a A.\n# TYPE a gauge\na{process="%s"} 1\n'


class Copies:
    """Two copies, whose answers a test decides."""

    def __init__(self, directory: Path, stack: ExitStack):
        self.sockets = {number: directory / number for number in ("1", "2")}
        self.answers = {
            number: {
                "/livez": HttpAnswer(200, "live\n"),
                "/readyz": HttpAnswer(200, "charge: in its group\n"),
                "/metrics": HttpAnswer(200, GAUGE % number),
            }
            for number in self.sockets
        }
        self.servers = {number: self.serve(number) for number in self.sockets}
        for server in self.servers.values():
            stack.callback(server.close)
        self.now = 1000.0
        self.health = ReplicasHealth(self.sockets, lambda: self.now)

    def serve(self, number: str) -> HttpServer:
        routes = {path: lambda path=path: self.answers[number][path] for path in self.answers["1"]}
        return HttpServer.on_path(self.sockets[number], routes, lambda: None)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    with ExitStack() as stack:
        yield Copies(tmp_path, stack)


def test_all_live_and_all_are_ready(copies: Copies, golden: Golden) -> None:
    assert copies.health.live() == HttpAnswer(200, "live\n")
    ready = copies.health.ready()
    assert ready.status == 200
    golden(ready.text)


def test_one_that_stands_still_is_enough(copies: Copies) -> None:
    copies.answers["2"]["/livez"] = HttpAnswer(503, "charge: stuck\n")
    assert copies.health.live() == HttpAnswer(503, "process 2: charge: stuck\n")


def test_one_that_is_not_ready_is_enough(copies: Copies) -> None:
    copies.answers["1"]["/readyz"] = HttpAnswer(503, "charge: joining\n")
    ready = copies.health.ready()
    assert (ready.status, ready.text.splitlines()[0]) == (503, "process 1: charge: joining")


def test_a_copy_that_has_not_answered_yet_is_starting_and_never_fails(copies: Copies) -> None:
    copies.servers["2"].close()
    assert copies.health.live().status == 200
    ready = copies.health.ready()
    assert (ready.status, ready.text.splitlines()[1]) == (503, "process 2: starting")


def test_a_copy_that_has_answered_and_does_not_any_more_fails_after_a_minute(
    copies: Copies, golden: Golden
) -> None:
    assert copies.health.live().status == 200
    copies.servers["2"].close()
    copies.now += 3600.0  # nobody has asked: who is late once has not been silent for an hour
    assert copies.health.live().status == 200
    golden(copies.health.ready().text.splitlines()[1])
    with closing(copies.serve("2")):
        copies.now += 59.0
        assert copies.health.live().status == 200
    copies.now += 59.0
    assert copies.health.live().status == 200
    copies.now += 61.0
    live = copies.health.live()
    assert live.status == 503
    golden(live.text)
    copies.health.ended("2")
    assert copies.health.live().status == 200


def test_the_metrics_are_those_of_all_that_answer(copies: Copies) -> None:
    assert copies.health.metrics().text == (
        '# HELP a A.\n# TYPE a gauge\na{process="1"} 1\na{process="2"} 1\n'
    )
    copies.servers["1"].close()
    assert copies.health.metrics().text == GAUGE % "2"
