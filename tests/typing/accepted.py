"""Code of users in all its forms: a type checker accepts it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from window_consumer import (
    App,
    Condition,
    Fatal,
    PartialFailure,
    Produce,
    Record,
    RecordOrigin,
    ResultRefusedError,
    RetryLater,
    Running,
    Skip,
    current_record,
    header,
    key,
    timestamp,
    topic,
)

app = App("shop", version="1")


class Pool:
    def save(self, text: str) -> None: ...


@app.lifespan
def pool() -> Iterator[Pool]:
    yield Pool()


other = App("other")


@other.lifespan
def opened() -> AbstractContextManager[Pool]:
    return contextlib.nullcontext(Pool())


@app.middleware
def timed(record: Record, call_next: Callable[[Record], object]) -> object:
    return call_next(record)


@app.middleware(around="batches")
def counted(records: list[Record], call_next: Callable[[list[Record]], object]) -> object:
    return call_next(records)


@app.batch_handler("clicks", max_records=1000, min_records=100, max_wait="500ms", group="shop")
def store(records: list[Record]) -> None:
    raise PartialFailure(failed=records[:1])


@app.batch_handler("clicks", ordering="key", retry={"on_failure": "block"}, value=int)
def sum_up(counts: list[int], records: list[Record]) -> Produce:
    failed = [
        (record, ValueError()) for record, count in zip(records, counts, strict=True) if not count
    ]
    raise PartialFailure(failed)


@app.batch_handler("clicks")
async def store_later(records: list[Record]) -> None: ...


@app.middleware(around="coroutines")
async def traced(record: Record, call_next: Callable[[Record], Awaitable[object]]) -> object:
    return await call_next(record)


coroutines = App("coroutines")


@coroutines.lifespan
async def connected() -> AsyncIterator[Pool]:
    yield Pool()


@dataclass
class Order:
    id: int


@app.handler("orders")
def gets_an_object(order: Order) -> None: ...


@app.handler("orders")
def gets_both(order: Order | None, record: Record) -> None: ...


@app.handler("orders", value=lambda value: Order(int(value)))
def gets_what_is_decoded(record: Record, order: Order) -> None: ...


@app.handler("orders")
async def waits(order: Record) -> None: ...


@app.handler("orders")
async def waits_for_an_object(order: Order, record: Record) -> Produce | None:
    return Produce("invoices", str(order.id)) if record.attempt == 1 else None


@app.batch_handler("clicks", max_records=1000, min_records=100, max_wait="500ms")
def gets_many(clicks: list[Record]) -> None:
    failed = [click for click in clicks if click.value is None]
    if failed:
        raise PartialFailure(failed)


@app.batch_handler("clicks", ordering="key", concurrency=4)
def gets_many_objects(orders: list[Order], records: list[Record]) -> list[Produce]:
    return [Produce("invoices", r.key, str(o.id)) for o, r in zip(orders, records, strict=True)]


@app.batch_handler("clicks")
def sums_up(orders: Sequence[Order]) -> Produce:
    return Produce("sums", value=str(sum(order.id for order in orders)))


@app.handler("orders", fatal=[ResultRefusedError])
def produces_one(order: Record) -> Produce:
    return Produce("invoices", order.key, order.value, partition=order.partition)


@app.handler("orders")
def produces_some(order: Order) -> list[Produce] | None:
    return [
        Produce(
            "invoices", str(order.id), "text", headers={"kind": "a", "raw": b"b", "none": None}
        ),
        Produce("audit", b"k", headers=[("twice", b"1"), ("twice", b"2")], timestamp=1),
        Produce("compacted", "k", None),
    ]


payments = App("payments")


@payments.lifespan
async def session() -> AsyncIterator[Pool]:
    yield Pool()


@payments.middleware
async def awaited(record: Record, call_next: Callable[[Record], Awaitable[object]]) -> object:
    return await call_next(record)


@payments.middleware(around="functions")
def called(record: Record, call_next: Callable[[Record], object]) -> object:
    return call_next(record)


@payments.handler("payments", concurrency=10_000)
async def settle(payment: Order, record: Record) -> None:
    record.state.save(str(payment.id))


async def await_a_decorated_function(record: Record) -> None:
    await settle(Order(1), record)


more = App("more")


@more.lifespan
def opened_later() -> AbstractAsyncContextManager[Pool]:
    return contextlib.nullcontext(Pool())


@app.handler(
    "orders", ordering="key", concurrency=8, fatal=[ValueError, "shop.InvalidOrder"], group=None
)
def charge(order: Record) -> None:
    key: bytes | None = order.key
    if key is None:
        raise Skip
    if order.value is None:
        raise Fatal("a tombstone")
    if order.attempt > 1 and not order.cancelled:
        raise RetryLater(0.5)
    order.state.save(order.text())


@app.handler(patterns=["^refunds[.]"], retry={"attempts": 5, "backoff": "1s..30s"}, memory="64MiB")
def refund(order: Record) -> dict[str, int]:
    headers: list[tuple[str, bytes | None]] = order.headers
    return {name: len(value or b"") for name, value in headers}


@app.handler("payments", when=(header("type") == "paid") & ~key.is_in(["test", None]), ttl="30s")
def paid(payment: Record) -> None: ...


@app.handler(
    "payments",
    when=lambda payment: payment.header("type") is not None,
    otherwise="skip",
    ttl={"header": "ttl", "unit": "s", "format": "int64be"},
    on_expired="drop",
)
def others(payment: Record) -> None: ...


of_last_year: Condition = (timestamp < "2026-01-01") | (header("year") <= 2025) | (topic == "old")


class Shop:
    def __init__(self) -> None:
        self.seen = 0
        other.handler("orders", name="count")(self.count)

    def count(self, record: Record) -> None:
        self.seen += record.attempt


@app.oauth_token
def token(config: str) -> tuple[str, float]:
    return config, 0.0


def call_a_decorated_function(record: Record) -> dict[str, int]:
    return refund(record)


def embed(config: Path) -> int:
    running: Running
    with app.start(config, only=["charge"], overrides=["workers.charge.concurrency=2"]) as running:
        running.wait(1.0)
    return running.counters["charge"].processed


def of_which_record() -> int | None:
    record = current_record()
    return None if record is None else record.offset


def stored(record: Record) -> tuple[str, str, int, int]:
    origin: RecordOrigin = record.origin
    return record.id, origin.topic, origin.partition, origin.offset
