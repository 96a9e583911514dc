"""A queue in memory, with the leases and the order that a worker's queue has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from time import monotonic, time

from attrs import define, evolve

from window_consumer.sqs.queue import (
    InvalidReceiptError,
    MessageRefusedError,
    NotInFlightError,
    QueuedMessage,
    QueueFigures,
    SentMessage,
)


@define
class Stored:
    """A record that is not finished."""

    message: QueuedMessage
    visible_at: float = 0.0


class MemoryQueue:
    """Records of one partition. ``refuses`` is raised by the next sends."""

    def __init__(self, name: str, *, fifo: bool = False, visibility_timeout_s: float = 30.0):
        self.name = name
        self.fifo = fifo
        self.visibility_timeout_s = visibility_timeout_s
        self.leases_until_dead: int | None = None
        self.delays: list[float] = []
        self.refuses: Exception | None = None
        self.receiving = 0
        self._offsets = count()
        self._receipts = count()
        self._stored: dict[int, Stored] = {}
        self._leased: dict[str, int] = {}
        self._changed = asyncio.Event()

    @property
    def unfinished(self) -> int:
        """Return how many records are not deleted."""
        return len(self._stored)

    def put(
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
        message_id: str | None = None,
    ) -> SentMessage:
        """Store a record, as a producer of Kafka's would."""
        offset = next(self._offsets)
        message = QueuedMessage(
            message_id=message_id or f"topic-0-{offset}",
            receipt_handle="",
            value=value,
            key=key,
            headers=headers,
            topic="topic",
            partition=0,
            offset=offset,
            timestamp_ms=round(time() * 1000),
            first_received_ms=0,
            attempt=0,
        )
        self._stored[offset] = Stored(message)
        self._changed.set()
        return SentMessage(message_id=message.message_id, topic="topic", partition=0, offset=offset)

    async def receive(
        self, most: int, wait_s: float, visibility_s: float | None
    ) -> Sequence[QueuedMessage]:
        until = monotonic() + wait_s
        self.receiving += 1
        try:
            while not (found := self._lease(most, visibility_s)):
                left = until - monotonic()
                if left <= 0:
                    break
                self._changed.clear()
                nearest = min((each.visible_at for each in self._stored.values()), default=until)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, max(0.01, nearest - monotonic()))):
                        await self._changed.wait()
        finally:
            self.receiving -= 1
        return found

    def _lease(self, most: int, visibility_s: float | None) -> list[QueuedMessage]:
        lasts_s = self.visibility_timeout_s if visibility_s is None else visibility_s
        now = monotonic()
        busy = {
            each.message.key
            for each in self._stored.values()
            if each.visible_at > now and each.message.key is not None
        }
        found: list[QueuedMessage] = []
        for offset, each in self._stored.items():
            key = each.message.key
            if len(found) == most:
                break
            if each.visible_at > now or (self.fifo and key in busy):
                continue
            if self.fifo and key is not None:
                busy.add(key)
            each.visible_at = now + lasts_s
            each.message = evolve(
                each.message,
                receipt_handle=f"{self.name} {next(self._receipts)}",
                first_received_ms=each.message.first_received_ms or round(time() * 1000),
                attempt=each.message.attempt + 1,
            )
            self._leased[each.message.receipt_handle] = offset
            found.append(each.message)
        return found

    async def delete(self, receipt_handle: str) -> None:
        stored = self._of(receipt_handle)
        if stored is not None:
            del self._stored[stored.message.offset]
            self._changed.set()

    async def change_visibility(self, receipt_handle: str, seconds: float) -> None:
        stored = self._of(receipt_handle)
        if stored is None or stored.visible_at <= monotonic():
            raise NotInFlightError(receipt_handle)
        stored.visible_at = monotonic() + seconds
        self._changed.set()

    async def give_back(self, receipt_handle: str) -> None:
        stored = self._of(receipt_handle)
        if stored is not None:
            stored.visible_at = monotonic()
            stored.message = evolve(stored.message, attempt=stored.message.attempt - 1)
            self._changed.set()

    def _of(self, receipt_handle: str) -> Stored | None:
        if receipt_handle not in self._leased:
            raise InvalidReceiptError(f"{receipt_handle}: ask http://other:9324")
        stored = self._stored.get(self._leased[receipt_handle])
        return stored if stored and stored.message.receipt_handle == receipt_handle else None

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        delay_s: float = 0,
        message_id: str | None = None,
    ) -> SentMessage:
        if self.refuses is not None:
            raise self.refuses
        if value == b"refused":
            raise MessageRefusedError("topic takes no such record")
        self.delays.append(delay_s)
        return self.put(value, key, headers, message_id)

    async def figures(self) -> QueueFigures:
        leased = sum(each.visible_at > monotonic() for each in self._stored.values())
        return QueueFigures(waiting=len(self._stored) - leased, in_flight=leased, delayed=7)
