"""The admin address of several replicas: the parent process queries each through its socket."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from attrs import define, field

from window_consumer.admin.board import ANSWER_S, BoardAddress, CellPlace, now_ms
from window_consumer.admin.interventions import DEADLINE_S
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    ConcurrencyRequest,
    Intervention,
    InterventionResult,
    PauseRequest,
)
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.replica import HttpAnswer, ask

_LONGER_S: Final = 0.5
"""How much longer a replica takes than its poll threads, because it waits for each of them."""

_HALT_S: Final = 11.0
"""Longer than a poll thread may take to pause."""

_INTERVENE_S: Final = _HALT_S + DEADLINE_S
"""Includes the wait for temporary obstacles."""


@define
class ReplicasBoard:
    """All replicas, as a board. Any thread may call it."""

    sockets: Mapping[str, Path]
    """The socket of each replica, by its number."""
    workers: int
    """The number of workers in each replica."""
    _threads: ThreadPoolExecutor = field(init=False)

    def __attrs_post_init__(self) -> None:
        """Start threads for each replica: a frozen one occupies a thread until the timeout."""
        self._threads = ThreadPoolExecutor(2 * len(self.sockets), "wc-web-copies")

    def windows(self, *, stacks: bool, history: bool) -> dict[str, Any]:
        """Return the state of all workers of all replicas that answer."""
        query = urlencode({"stacks": int(stacks), "history": int(history)})
        return self._joined(f"/api/windows?{query}")

    def frame(self, since: int) -> dict[str, Any]:
        """Return the data of the page for all replicas that answer."""
        return self._joined(f"/api/frame?since={since}")

    def cell(self, at: CellPlace) -> dict[str, Any] | None:
        """Return one cell of one replica."""
        rest = f"cells/{at.number}" if at.offset is None else f"records/{at.offset}"
        return self._first(at, rest, "GET")

    def value(self, at: CellPlace) -> dict[str, Any] | None:
        """Return the value of one record that one replica holds."""
        return self._first(at, f"records/{at.offset}/value", "POST")

    def _first(self, at: CellPlace, rest: str, method: str) -> dict[str, Any] | None:
        path = _path(at.worker, at.partition, rest)
        numbers = [at.process] if at.process else self.sockets
        answers = self._ask(numbers, path, method, 2 * ANSWER_S).values()
        return next((each for each in map(_json_of, answers) if each is not None), None)

    def halt(self, at: BoardAddress, request: PauseRequest, *, halted: bool) -> bool | None:
        """Pause or resume a worker or a partition of one replica, or of all that have it."""
        query = urlencode({"user": request.user, "reason": request.reason})
        return self._of_all(at, f"{'pause' if halted else 'resume'}?{query}")

    def decide_breaker(self, at: BoardAddress, *, release: bool) -> BreakerAnswer | None:
        """Decide about the breaker of a worker in one replica, or in all; one that obeys is enough.

        None if one did not answer: it may still hold the records.
        """
        numbers = [at.process] if at.process else list(self.sockets)
        path = _path(at.worker, None, f"breaker/{'release' if release else 'hold'}")
        answers = self._ask(numbers, path, "POST", _HALT_S)
        results = {_breaker_answer(each) for each in answers.values()}
        if None in results:
            return None
        found = (each for each in BreakerAnswer if each in results)
        return next(found, BreakerAnswer.NO_SUCH_WORKER)

    def set_concurrency(
        self, at: BoardAddress, request: ConcurrencyRequest
    ) -> ConcurrencyAnswer | None:
        """Set the concurrency of a worker in one replica, or in all.

        None if one did not answer: it may still use the old one.
        """
        numbers = [at.process] if at.process else list(self.sockets)
        query = urlencode({"user": request.user, "reason": request.reason})
        path = _path(at.worker, None, f"concurrency/{request.limit or 'auto'}?{query}")
        answers = self._ask(numbers, path, "POST", _HALT_S)
        results = {_concurrency_answer(each) for each in answers.values()}
        if None in results:
            return None
        found = (each for each in ConcurrencyAnswer if each in results)
        return next(found, ConcurrencyAnswer.NO_SUCH_WORKER)

    def _of_all(self, at: BoardAddress, what: str) -> bool | None:
        """Send a command to one replica, or to all; return whether any obeyed, None if unknown."""
        numbers = [at.process] if at.process else list(self.sockets)
        path = _path(at.worker, at.partition, what)
        answers = self._ask(numbers, path, "POST", _HALT_S)
        if any(each is not None and each.status == http.client.OK for each in answers.values()):
            # One replica owns a partition; a worker is paused wherever it answered.
            return None if at.partition is None and None in answers.values() else True
        return None if None in answers.values() else False

    def intervene(self, at: CellPlace, wanted: Intervention) -> InterventionResult | None:
        """Remove a record through the replica that owns its partition."""
        numbers = [at.process] if at.process else list(self.sockets)
        path = _path(at.worker, at.partition, f"records/{at.offset}/{wanted}")
        answers = self._ask(numbers, path, "POST", _INTERVENE_S)
        verdicts = [_verdict_of(each) for each in answers.values()]
        known = [each for each in verdicts if each not in {None, InterventionResult.NOT_ASSIGNED}]
        if known:
            return known[0]
        return None if None in verdicts else InterventionResult.NOT_ASSIGNED

    def take_samples(self) -> None:
        """Do nothing: the replicas take their own samples."""

    def _joined(self, path: str) -> dict[str, Any]:
        deadline_s = self.workers * ANSWER_S + _LONGER_S
        answers = self._ask(self.sockets, path, "GET", deadline_s)
        parsed = {number: _json_of(each) for number, each in answers.items()}
        return {
            "process": "",
            "time": now_ms(),
            "workers": [worker for each in parsed.values() if each for worker in each["workers"]],
            "missing": [number for number, each in parsed.items() if each is None],
        }

    def _ask(
        self, numbers: Iterable[str], path: str, method: str, deadline_s: float
    ) -> dict[str, HttpAnswer | None]:
        known = [number for number in numbers if number in self.sockets]

        def ask_one(number: str) -> HttpAnswer | None:
            return ask(self.sockets[number], path, method, deadline_s)

        return dict(zip(known, self._threads.map(ask_one, known), strict=True))


def _path(worker: str, partition: TopicPartition | None, rest: str) -> str:
    place = f"/api/workers/{quote(worker, safe='')}"
    if partition is not None:
        place += f"/partitions/{quote(partition.topic, safe='')}/{partition.partition}"
    return f"{place}/{rest}"


def _verdict_of(answer: HttpAnswer | None) -> InterventionResult | None:
    if answer is None or answer.status == http.client.GATEWAY_TIMEOUT:
        return None
    return InterventionResult(json.loads(answer.text)["verdict"])


def _breaker_answer(answer: HttpAnswer | None) -> BreakerAnswer | None:
    if answer is None or answer.status == http.client.GATEWAY_TIMEOUT:
        return None
    return BreakerAnswer(json.loads(answer.text)["result"])


def _concurrency_answer(answer: HttpAnswer | None) -> ConcurrencyAnswer | None:
    if answer is None or answer.status == http.client.GATEWAY_TIMEOUT:
        return None
    return ConcurrencyAnswer(json.loads(answer.text)["result"])


def _json_of(answer: HttpAnswer | None) -> dict[str, Any] | None:
    if answer is None or answer.status != http.client.OK:
        return None
    parsed: dict[str, Any] = json.loads(answer.text)
    return parsed
