"""The queue of a worker: clients lease its records, and their answers are the calls' results."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from time import perf_counter, time_ns
from typing import Final

from attrs import astuple, define, field

from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import CallAgain, RetryLater
from window_consumer.model.headers import PREFIX
from window_consumer.model.record_identity import RecordOrigin, id_text
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.runtime.pools.leases import Lease, Leases
from window_consumer.runtime.running import Running
from window_consumer.runtime.worker import Worker
from window_consumer.sqs.config import PullConfig, queue_name
from window_consumer.sqs.metrics import LeaseFigures
from window_consumer.sqs.queue import (
    InvalidReceiptError,
    NotInFlightError,
    QueuedMessage,
    QueueFigures,
    SentMessage,
)
from window_consumer.sqs.receipts import AssignmentNumbers, ReceiptHandle
from window_consumer.sqs.sending import QueueSender

_SHORTEST_WAIT_S: Final = 0.25
"""Records are fetched when a client asks for them, so even a client that does not wait waits this
long."""

_AGAIN_S: Final = 0.05
"""The wait before another request after one that got nothing because its partition was released."""

_TOGETHER_S: Final = 0.001
"""How long the first record waits for others that start with it: a client that asks for ten should
get ten."""

_FIGURES_S: Final = 2.0
"""How long a poll thread may take to answer."""


@define
class QueueCounts:
    """The counts of a queue's leases. Owner: the endpoint's event loop."""

    received: int = 0
    deleted: int = 0
    returned: int = 0
    """Leases given back with a visibility timeout of 0."""
    late: int = 0
    """Answers that came after the lease had ended."""
    invalid: int = 0
    """Receipt handles of other processes or earlier assignments."""


@define(eq=False)
class WorkerQueue:
    """The queue of one worker, see ``Queue``. Owner: the endpoint's event loop."""

    worker: PlannedWorker
    owner: str
    """The name of this process in receipt handles, different in each."""
    url: str
    """The address of this process as clients write it."""
    sender: QueueSender
    executor: Executor
    """Asks the poll thread for figures."""
    assignments: AssignmentNumbers = field(factory=AssignmentNumbers)
    """An observer of the worker."""
    counts: QueueCounts = field(factory=QueueCounts)
    _running: Running | None = None

    def attach(self, running: Running) -> None:
        """Take the workers that are about to start."""
        self._running = running

    @property
    def fifo(self) -> bool:
        """Whether records of a key are leased one at a time, in the order of their offsets."""
        return self.worker.config.ordering == "key"

    @property
    def name(self) -> str:
        """The worker's name, with `.fifo` after it if the worker is ordered by key."""
        return queue_name(self.worker.config)

    @property
    def visibility_timeout_s(self) -> float:
        """How long a lease lasts unless the client says otherwise, in seconds."""
        return self.worker.config.section(PullConfig).visibility_timeout

    @property
    def leases_until_dead(self) -> int | None:
        """How many failed leases make a record a dead letter; None if it never becomes one."""
        retry = self.worker.config.retry
        if retry.on_failure == "block" or retry.when_spent != "dead_letter":
            return None
        return retry.attempts + len(retry.levels) * retry.attempts_per_level

    async def receive(
        self, most: int, wait_s: float, visibility_s: float | None
    ) -> Sequence[QueuedMessage]:
        """Lease up to `most` records, see ``Queue.receive``."""
        lease_s = self.visibility_timeout_s if visibility_s is None else visibility_s
        loop = asyncio.get_running_loop()
        until = loop.time() + max(wait_s, _SHORTEST_WAIT_S)
        while (left_s := until - loop.time()) > 0:
            leases = self._leases()
            taken = [] if leases is None else await _take(leases, most, left_s, lease_s)
            if taken:
                self.counts.received += len(taken)
                return [self._message(each) for each in taken]
            await asyncio.sleep(min(_AGAIN_S, max(0.0, until - loop.time())))
        return []

    async def delete(self, receipt_handle: str) -> None:
        """Finish the record of a lease, see ``Queue.delete``."""
        handle = self._checked(receipt_handle)
        leases = self._leases()
        if leases is not None and leases.finish(handle.lease):
            self.counts.deleted += 1
        else:
            self._refuse_earlier(handle)
            self.counts.late += 1

    async def change_visibility(self, receipt_handle: str, seconds: float) -> None:
        """Let the lease end `seconds` from now, see ``Queue.change_visibility``."""
        handle = self._checked(receipt_handle)
        leases = self._leases()
        if leases is not None and seconds > 0 and leases.renew(handle.lease, seconds):
            return
        given_back = RetryLater(0.0, "a client gave it back")
        if leases is not None and seconds <= 0 and leases.finish(handle.lease, given_back):
            self.counts.returned += 1
            return
        self._refuse_earlier(handle)
        self.counts.late += 1
        raise NotInFlightError(
            f"the lease of {handle.name}@{handle.offset} has ended: another client may have it"
        )

    async def give_back(self, receipt_handle: str) -> None:
        """Give a record back, see ``Queue.give_back``."""
        handle, leases = self._checked(receipt_handle), self._leases()
        if leases is not None:
            leases.finish(handle.lease, CallAgain(0.0, "its client had gone"))

    async def send(
        self,
        value: bytes,
        *,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        delay_s: float = 0,
        message_id: str | None = None,
    ) -> SentMessage:
        """Write a record to the queue's topic, see ``Queue.send``."""
        return await self.sender.send(value, key, headers, delay_s, message_id)

    async def figures(self) -> QueueFigures:
        """Return how many records of this process wait, are leased and are delayed."""
        worker, leases = self._worker(), self._leases()
        if worker is None or leases is None:
            return QueueFigures(waiting=0, in_flight=0, delayed=0)
        loop = asyncio.get_running_loop()
        ask = partial(worker.snapshot, _FIGURES_S, cells=False)
        snapshot = await loop.run_in_executor(self.executor, ask)
        return figures_of(snapshot.windows, leases.in_flight)

    def lease_figures(self) -> LeaseFigures:
        """Return the counts of its leases. Any thread may call it."""
        leases, counts = self._leases(), self.counts
        return LeaseFigures(0 if leases is None else leases.in_flight, *astuple(counts))

    # ---- inside

    def _worker(self) -> Worker | None:
        """Return the worker, looked up each time because a hanging worker is replaced."""
        workers = () if self._running is None else self._running.workers
        return next((each for each in workers if each.name == self.worker.name), None)

    def _leases(self) -> Leases | None:
        worker = self._worker()
        return None if worker is None else worker.leases

    def _checked(self, text: str) -> ReceiptHandle:
        """Return a handle of this queue in this process; raises InvalidReceiptError."""
        handle = ReceiptHandle.parse(text)
        if handle is None:
            raise self._invalid("this is no receipt handle that a queue has given out")
        if handle.queue != self.worker.name:
            raise self._invalid(f"this is a receipt handle of the queue {handle.queue}")
        if handle.owner != self.owner:
            raise self._invalid(_elsewhere(handle, self.url))
        return handle

    def _refuse_earlier(self, handle: ReceiptHandle) -> None:
        if not self.assignments.is_current(handle):
            raise self._invalid(
                f"{handle.name} was reassigned after {handle.offset} had been received: whichever"
                " process has the partition now hands the record out again"
            )

    def _invalid(self, why: str) -> InvalidReceiptError:
        self.counts.invalid += 1
        return InvalidReceiptError(why)

    def _message(self, lease: Lease) -> QueuedMessage:
        slice_, message = lease.slice_, lease.message
        partition = slice_.partition
        hop = partition.retry_level.hop_of(message)
        headers = message.headers()
        topic, number = hop.origin
        handle = ReceiptHandle(
            self.owner,
            self.url,
            self.worker.name,
            partition.name.topic,
            partition.name.partition,
            message.offset(),
            self.assignments.number_of(partition),
            lease.number,
        )
        now_ms = time_ns() // 1_000_000
        return QueuedMessage(
            message_id=_id_of(hop),
            receipt_handle=str(handle),
            value=message.value(),
            key=message.key(),
            headers=[
                (name, value or b"") for name, value in headers or () if not name.startswith(PREFIX)
            ],
            topic=topic,
            partition=number,
            offset=hop.offset,
            timestamp_ms=hop.timestamp or now_ms,
            first_received_ms=hop.first_failure or now_ms - _since_first_ms(slice_),
            attempt=slice_.call.number_of(message),
        )


def _id_of(hop: Hop) -> str:
    """Return a record's id; slashes would need quoting in some clients."""
    origin = RecordOrigin(*hop.origin, hop.offset)
    if hop.record_id == str(origin).encode():
        return "-".join(map(str, origin))
    return id_text(hop.record_id)


async def _take(leases: Leases, most: int, wait_s: float, lease_s: float) -> list[Lease]:
    """Take up to this many records as soon as one is ready."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, ready)

    request = leases.ask(most, wake)
    try:
        await asyncio.wait([ready], timeout=wait_s)
        if not ready.done():
            return []
        if most > 1:
            await asyncio.sleep(_TOGETHER_S)
        return leases.take(request, lease_s)
    finally:
        leases.withdraw(request)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _since_first_ms(slice_: Slice) -> int:
    """Return how long ago a record was first leased here, in milliseconds."""
    again = next(iter(slice_.again.values()), None)
    first = slice_.started if again is None else again.first_called_at or slice_.started
    return round(1000 * (perf_counter() - first))


def _elsewhere(handle: ReceiptHandle, url: str) -> str:
    place = f"{handle.name}@{handle.offset}"
    if handle.url == url:
        return f"{place} was received before this process started: it is handed out again"
    return (
        f"{place} was received from {handle.url}, and this is {url}: a client must delete where it"
        " received"
    )


def figures_of(windows: WindowsSnapshot | None, in_flight: int) -> QueueFigures:
    """Return the figures of a worker's partitions; unknown ones count as 0."""
    waiting = delayed = 0
    for each in () if windows is None else windows.partitions:
        unfinished = (each.unread or 0) + each.open + each.buffered
        due = unfinished if each.level is None else each.lag.records or 0
        waiting += due - each.failed
        delayed += unfinished - due + each.failed
    return QueueFigures(waiting=max(0, waiting - in_flight), in_flight=in_flight, delayed=delayed)
