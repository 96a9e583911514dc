"""Mistakes of users: a type checker refuses each line that ends in `# refused`, and no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from window_consumer import App, Produce, Record, RetryLater, header

app = App("shop")


@app.handler("orders")  # refused
def gets_nothing() -> None: ...


@app.handler("orders")  # refused
def gets_three(order: str, record: Record, attempt: int) -> None: ...


@app.handler("orders", ordering="keys")  # refused
def has_no_such_order(order: Record) -> None: ...


@app.handler("orders", concurrency="8")  # refused
def counts_in_text(order: Record) -> None: ...


@app.handler("orders", grup="shop")  # refused
def misspells_a_key(order: Record) -> None: ...


@app.handler("orders", max_records=7)  # refused
def takes_no_batches(order: Record) -> None: ...


@app.handler("orders", pool="processs")  # refused
def has_no_such_pool(order: Record) -> None: ...


@app.handler(["orders"])  # refused
def lists_its_topics(order: Record) -> None: ...


@app.handler  # refused
def forgets_the_parentheses(order: Record) -> None: ...


@app.batch_handler  # refused
def forgets_them_for_batches(clicks: list[Record]) -> None: ...


@app.handler("orders", when="header('a') == 'b'")  # refused
def writes_its_condition_as_text(order: Record) -> None: ...


@app.handler("orders", otherwise="ignore")  # refused
def has_no_such_end(order: Record) -> None: ...


@app.handler("orders", when=(header("a") == "b") & True)  # refused
def joins_what_is_no_condition(order: Record) -> None: ...


@app.handler("orders", value="avro")  # refused
def names_its_decoder(order: str) -> None: ...


@app.batch_handler("clicks")  # refused
def gets_one(click: Record) -> None: ...


@app.batch_handler("clicks")  # refused
def gets_one_beside_many(clicks: list[str], record: Record) -> None: ...


@app.batch_handler("clicks", max_wait=0.5)  # refused
def waits_without_a_unit(clicks: list[Record]) -> None: ...


@app.handler("orders")  # refused
async def waits_for_nothing() -> None: ...


@app.middleware  # refused
def goes_nowhere(record: Record) -> object: ...


@app.middleware  # refused
def calls_with_text(record: Record, call_next: Callable[[str], object]) -> object: ...


@app.middleware(around="threads")  # refused
def is_for_nobody(record: Record, call_next: Callable[[Record], object]) -> object: ...


@app.middleware  # refused
async def awaits_nothing(record: Record) -> object: ...


@app.lifespan  # refused
async def opens_nothing_later() -> int:
    return 1


@app.lifespan  # refused
def opens_nothing() -> int:
    return 1


@app.oauth_token  # refused
def never_expires(config: str) -> str:
    return config


@app.batch_handler("clicks", max_record=7)  # refused
def misspells(records: list[Record]) -> None: ...


@app.batch_handler("clicks", max_records="many")  # refused
def does_not_count(records: list[Record]) -> None: ...


def misuse(record: Record, config: Path) -> None:
    record.offset = 7  # refused
    record.id = "7"  # refused
    record.id.decode()  # refused
    record.origin.offset = 7  # refused
    record.value.decode()  # refused
    record.payload()  # refused
    running = app.start(config, only=1)  # refused
    running.wait("soon")  # refused
    Produce("invoices", 7)  # refused
    Produce("invoices", "k", {"id": 1})  # refused
    Produce(b"invoices")  # refused
    Produce("invoices", "k", "v", [("a", b"1")])  # refused
    Produce("invoices", headers={"a": 1})  # refused
    Produce("invoices", partition="1")  # refused
    Produce("invoices").value = b"v"  # refused
    raise RetryLater("2s")  # refused
