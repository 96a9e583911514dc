"""Decorated functions keep their signatures: each comment is what a type checker reveals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import reveal_type

from sqlalchemy import create_engine

from window_consumer import App, Produce, Record
from window_consumer.database import Once

app = App("shop")
once = Once(lambda: create_engine("sqlite://"))


@dataclass
class Order:
    id: int


@app.handler("orders")
def gets_a_record(order: Record) -> None: ...


@app.handler("orders", ordering="key", concurrency=8)
def gets_both(order: Order, record: Record) -> Produce | None:
    raise NotImplementedError


@app.handler("orders", value=lambda value: Order(int(value)))
def gets_what_is_decoded(order: Order) -> list[Produce]:
    raise NotImplementedError


@app.handler("orders", once=once)
def runs_once(order: Order, record: Record) -> None: ...


@app.handler("orders")
def has_a_default(order: Order, record: Record, tries: int = 3) -> int:
    raise NotImplementedError


@app.handler("orders")
async def waits(order: Order, record: Record) -> str:
    raise NotImplementedError


@app.batch_handler("clicks", max_records=100)
def gets_many(clicks: list[Record]) -> None: ...


@app.batch_handler("clicks", once=once)
def gets_many_once(orders: list[Order], records: list[Record]) -> Produce:
    raise NotImplementedError


@app.batch_handler("clicks")
async def waits_for_many(orders: list[Order]) -> None: ...


@app.middleware
def timed(record: Record, call_next: Callable[[Record], object]) -> object:
    return call_next(record)


@app.lifespan
def opened() -> Iterator[int]:
    yield 1


reveal_type(gets_a_record)  # (order: Record) -> None
reveal_type(gets_both)  # (order: Order, record: Record) -> Produce | None
reveal_type(gets_what_is_decoded)  # (order: Order) -> list[Produce]
reveal_type(runs_once)  # (order: Order, record: Record) -> None
reveal_type(has_a_default)  # (order: Order, record: Record, tries: int = ...) -> int
reveal_type(waits)  # (order: Order, record: Record) -> Coroutine[Any, Any, str]
reveal_type(gets_many)  # (clicks: list[Record]) -> None
reveal_type(gets_many_once)  # (orders: list[Order], records: list[Record]) -> Produce
reveal_type(waits_for_many)  # (orders: list[Order]) -> Coroutine[Any, Any, None]
reveal_type(timed)  # (record: Record, call_next: (Record) -> object) -> object
reveal_type(opened)  # () -> Iterator[int]
