"""The handler of a worker with ``http``: one request a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from window_consumer.model.errors import HoldCalls
from window_consumer.model.produce import Produce
from window_consumer.model.record import Record
from window_consumer.push.answer import Answer, StatusRules
from window_consumer.push.client import HttpClient
from window_consumer.push.config import HttpConfig
from window_consumer.push.request import Request, RequestMaker
from window_consumer.push.results import ResultReader
from window_consumer.runtime.calls.batch_calls import SortedResults, answers_of
from window_consumer.runtime.worker import SystemClock

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class PushHandler:
    """Posts records, and gives them back while the service asks for a pause.

    Owner: the event loop of the worker.
    """

    def __init__(self, config: HttpConfig, connections: int, wall_ms: Callable[[], int]):
        self._client = HttpClient(config, connections)
        # Services judge the age of a signature by their own clock, also those behind a test.
        self._requests = RequestMaker(config, SystemClock().wall_ms)
        self._reader = ResultReader(self._client.where, frozenset(config.may_produce))
        self._rules = StatusRules(frozenset(config.skip_status), frozenset(config.fatal_status))
        self._wall_ms = wall_ms
        self._held_until = self._held_until_ms = 0.0
        """The end of a pause by the loop's time and by the wall clock: the earlier one counts, as
        either may be wrong. The worker holds back calls; these have begun before it knew."""

    async def post(self, record: Record) -> list[Produce] | None:
        """Post a record; return what its answer wants produced, raise what else it means."""
        answer = await self._answer(self._requests.of_record(record))
        if not self._reader.may_produce:
            return None
        return self._reader.produced(self._reader.body_of(answer)) or None

    async def post_batch(self, records: list[Record]) -> list[Produce] | None:
        """Post several records in one request, as ``post`` does; raise which of them failed."""
        body = self._reader.body_of(await self._answer(self._requests.of_batch(records)))
        produced = self._reader.produced(body) or None
        failures = self._reader.failed(body, len(records))
        if not failures:
            return produced
        failed = [(records[index], failures[index]) for index in sorted(failures)]
        done = [record for index, record in enumerate(records) if index not in failures]
        raise SortedResults(failed, answers=answers_of(done, produced) if done else ())

    async def _answer(self, request: Request) -> Answer:
        """Return an answer of success."""
        self._check_pause()
        answer = await self._client.post(request.headers, request.body)
        wall_ms = self._wall_ms()
        try:
            self._rules.judge(answer, self._client.where, wall_ms)
        except HoldCalls as hold:
            now = asyncio.get_running_loop().time()
            self._held_until = max(self._held_until, now + hold.after_s)
            self._held_until_ms = max(self._held_until_ms, wall_ms + hold.after_s * 1000)
            raise
        return answer

    def _check_pause(self) -> None:
        if not self._held_until:
            return
        left_s = self._held_until - asyncio.get_running_loop().time()
        left_s = min(left_s, (self._held_until_ms - self._wall_ms()) / 1000)
        if left_s > 0:
            raise HoldCalls(left_s, f"{self._client.where} has asked for a pause")
        self._held_until = self._held_until_ms = 0.0
