"""The handler of a worker with ``http``: one request per call."""

from __future__ import annotations

from collections.abc import Callable

from window_consumer.model.errors import HoldCalls
from window_consumer.model.produce import Produce
from window_consumer.model.record import Record
from window_consumer.push.answer import Answer, StatusRules
from window_consumer.push.client import HttpClient
from window_consumer.push.config import HttpConfig
from window_consumer.push.pause import ServicePause
from window_consumer.push.request import Request, RequestMaker
from window_consumer.push.results import ResultReader
from window_consumer.runtime.calls.batch_calls import SortedResults, answers_of
from window_consumer.runtime.clock import SystemClock

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class PushHandler:
    """Posts records, and returns them uncalled while the service asks for a pause.

    Owner: the event loop of the worker.
    """

    def __init__(
        self, config: HttpConfig, connections: int, wall_ms: Callable[[], int], pause: ServicePause
    ):
        self._client = HttpClient(config, connections)
        # Services judge the age of a signature by their own clock, in tests too.
        self._requests = RequestMaker(config, SystemClock().wall_ms)
        self._reader = ResultReader(self._client.where, frozenset(config.may_produce))
        self._rules = StatusRules(frozenset(config.skip_status), frozenset(config.fatal_status))
        self._wall_ms = wall_ms
        self._pause = pause
        pause.begin(wall_ms)

    async def post(self, record: Record) -> list[Produce] | None:
        """Post a record; return the results in the response, or raise the error that it means."""
        answer = await self._answer(self._requests.of_record(record))
        if not self._reader.may_produce:
            return None
        return self._reader.produced(self._reader.body_of(answer)) or None

    async def post_batch(self, records: list[Record]) -> list[Produce] | None:
        """Post several records in one request, like ``post``; raise which of them failed."""
        body = self._reader.body_of(await self._answer(self._requests.of_batch(records)))
        produced = self._reader.produced(body) or None
        failures = self._reader.failed(body, len(records))
        if not failures:
            return produced
        failed = [(records[index], failures[index]) for index in sorted(failures)]
        done = [record for index, record in enumerate(records) if index not in failures]
        raise SortedResults(failed, answers=answers_of(done, produced) if done else ())

    async def _answer(self, request: Request) -> Answer:
        """Return a successful response."""
        self._pause.check()
        answer = await self._client.post(request)
        try:
            self._rules.judge(answer, self._client.where, self._wall_ms())
        except HoldCalls as hold:
            self._pause.ask(hold)
            raise
        return answer
