"""The handler of a worker with ``http``: one request a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from window_consumer.model.errors import HoldCalls
from window_consumer.model.record import Record
from window_consumer.push.answer import StatusRules
from window_consumer.push.client import HttpClient
from window_consumer.push.config import HttpConfig
from window_consumer.push.request_headers import RequestHeaders

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class PushHandler:
    """Posts records, and gives them back while the service asks for a pause.

    Owner: the event loop of the worker.
    """

    def __init__(self, config: HttpConfig, connections: int, wall_ms: Callable[[], int]):
        self._client = HttpClient(config, connections)
        self._headers = RequestHeaders(config.headers)
        self._rules = StatusRules(frozenset(config.skip_status), frozenset(config.fatal_status))
        self._wall_ms = wall_ms
        self._held_until = self._held_until_ms = 0.0
        """The end of a pause by the loop's time and by the wall clock: the earlier one counts, as
        either may be wrong. The worker holds back calls; these have begun before it knew."""

    async def post(self, record: Record) -> None:
        """Post a record; raise what its answer means."""
        self._check_pause()
        answer = await self._client.post(self._headers.of(record), record.value or b"")
        wall_ms = self._wall_ms()
        try:
            self._rules.judge(answer, self._client.where, wall_ms)
        except HoldCalls as hold:
            now = asyncio.get_running_loop().time()
            self._held_until = max(self._held_until, now + hold.after_s)
            self._held_until_ms = max(self._held_until_ms, wall_ms + hold.after_s * 1000)
            raise

    def _check_pause(self) -> None:
        if not self._held_until:
            return
        left_s = self._held_until - asyncio.get_running_loop().time()
        left_s = min(left_s, (self._held_until_ms - self._wall_ms()) / 1000)
        if left_s > 0:
            raise HoldCalls(left_s, f"{self._client.where} has asked for a pause")
        self._held_until = self._held_until_ms = 0.0
