"""Calls of ``once`` without effect: their number, their time, and when they count as attempts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from attrs import define

from window_consumer.model.errors import CallAgain
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Record
from window_consumer.runtime.log import own_logger

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

QUIET_S: Final = 10.0
"""The interval of log lines about calls without effect."""

_Place = tuple[str, int, int]
_log = own_logger()


@define
class _OnceWait:
    since: float
    calls: int = 0
    last: float = 0.0


class OnceWaits:
    """The waits of one route's records in this process. Any slot may use it.

    Dictionary operations are atomic; two slots at the same time may log two lines.
    """

    def __init__(self, worker: str, most_s: float, *, counts: bool = True):
        """Such calls are no attempts for ``most_s``; for ever unless ``counts``."""
        self._worker = worker
        self._counts = counts
        self._most_s = most_s
        self._waits: dict[_Place, _OnceWait] = {}
        self._logged_at = float("-inf")

    def __len__(self) -> int:
        return len(self._waits)

    def refuse(self, records: Sequence[Record], began: float, again: CallAgain) -> CallAgain | None:
        """Count a call without effect; return None once such a call counts as an attempt.

        ``records`` are those of the call, ``began`` is its start, ``again`` has the reason.
        """
        now = time.monotonic()
        self._drop_old(now)
        waits = [self._waits.setdefault(_place(each), _OnceWait(began)) for each in records]
        for each in waits:
            each.calls += 1
            each.last = now
        longest, record = min(zip(waits, records, strict=True), key=lambda each: each[0].since)
        waited_s = now - longest.since
        if now - self._logged_at >= QUIET_S:
            self._logged_at = now
            self._log(record, longest.calls, waited_s, again)
        return again if waited_s < self._most_s or not self._counts else None

    def over(self, records: Sequence[Record]) -> None:
        """Remove records that no longer wait."""
        if self._waits:
            for record in records:
                self._waits.pop(_place(record), None)

    def _drop_old(self, now: float) -> None:
        """Remove records that another member has taken over."""
        for place, wait in list(self._waits.items()):
            if now - wait.last > self._most_s + QUIET_S and wait.calls:
                self._waits.pop(place, None)

    def _log(self, record: Record, calls: int, waited_s: float, again: CallAgain) -> None:
        _log.warning(
            "%s: once: %s[%d]@%d with the id %s has waited %.1f s, %d calls had no effect: %s",
            self._worker,
            record.topic,
            record.partition,
            record.offset,
            record.id,
            waited_s,
            calls,
            again,
            extra={
                "event": LogEvent.ONCE_WAITS,
                "worker": self._worker,
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "id": record.id,
                "waited_s": round(waited_s, 3),
                "calls": calls,
            },
        )


def _place(record: Record) -> _Place:
    return record.topic, record.partition, record.offset
