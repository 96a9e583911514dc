"""Handlers that raise what nobody raises: the record climbs the ladder, nothing else happens."""

from __future__ import annotations

import time

import pytest
from attrs import frozen

from tests.commands import DEADLINE_S, Commands, Ended, kafka_of
from tests.waiting import wait_until
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model import headers as names
from window_consumer.model.record import Message

SHOP = """
import asyncio
import os
import sys

from window_consumer import App, Fatal, Record, RetryLater, Skip

app = App("shop", version="7")


class OddError(BaseException):
    def __str__(self):
        raise ValueError("no text")


class InvalidOrder(Exception):
    pass


class InvalidAddress(InvalidOrder):
    pass


def out_of_recursion():
    out_of_recursion()


def chained():
    try:
        {}["price"]
    except KeyError as error:
        raise InvalidOrder("no price") from error


def raise_(error):
    raise error


ACTS = {
    "BaseException": lambda: raise_(BaseException("odd")),
    "sys.exit": lambda: sys.exit(3),
    "sys.exit(text)": lambda: sys.exit("good bye"),
    "KeyboardInterrupt": lambda: raise_(KeyboardInterrupt()),
    "TimeoutError": lambda: raise_(TimeoutError("slow")),
    "StopIteration": lambda: raise_(StopIteration("spent")),
    "GeneratorExit": lambda: raise_(GeneratorExit()),
    "CancelledError": lambda: raise_(asyncio.CancelledError()),
    "RecursionError": out_of_recursion,
    "MemoryError": lambda: raise_(MemoryError()),
    "ExceptionGroup": lambda: raise_(ExceptionGroup("two", [ValueError(1), ValueError(2)])),
    "no text": lambda: raise_(OddError()),
    "a huge text": lambda: raise_(ValueError("x" * 10_000_000)),
    "a secret": lambda: raise_(PermissionError(f"not with {os.environ['PASSWORD']}")),
    "a secret in the code": lambda: raise_(PermissionError("swordfish")),
    "Fatal": lambda: raise_(Fatal("never")),
    "RetryLater": lambda: raise_(RetryLater(0.01, "soon")),
    "listed as fatal": chained,
    "a subclass of it": lambda: raise_(InvalidAddress("nowhere")),
    "Skip": lambda: raise_(Skip()),
    "a result": lambda: "ignored",
}


@app.handler("orders", group="shop", fatal=[InvalidOrder],
             retry={"attempts": 2, "backoff": "10ms..20ms"}, breaker={"enabled": False})
def charge(order: Record) -> None:
    ACTS[order.text()]()
"""

LEAVES: dict[str, tuple[str, int, str]] = {
    "BaseException": ("BaseException", 2, "odd"),
    "sys.exit": ("SystemExit", 2, "3"),
    "sys.exit(text)": ("SystemExit", 2, "good bye"),
    "KeyboardInterrupt": ("KeyboardInterrupt", 2, ""),
    "TimeoutError": ("TimeoutError", 2, "slow"),
    "StopIteration": ("StopIteration", 2, "spent"),
    "GeneratorExit": ("GeneratorExit", 2, ""),
    "CancelledError": ("asyncio.exceptions.CancelledError", 2, ""),
    "RecursionError": ("RecursionError", 2, "maximum recursion depth exceeded"),
    "MemoryError": ("MemoryError", 2, ""),
    "ExceptionGroup": ("ExceptionGroup", 2, "two (2 sub-exceptions): ValueError: 1; ValueError: 2"),
    "no text": ("shop.OddError", 2, "<its text could not be read: ValueError>"),
    "a huge text": ("ValueError", 2, "x" * 1024),
    "a secret": ("PermissionError", 2, "not with ***"),
    "a secret in the code": ("PermissionError", 2, "***"),
    "Fatal": ("window_consumer.model.errors.Fatal", 1, "never"),
    "RetryLater": ("window_consumer.model.errors.RetryLater", 2, "soon"),
    "listed as fatal": ("shop.InvalidOrder", 1, "no price"),
    "a subclass of it": ("shop.InvalidAddress", 1, "nowhere"),
}
STAYS = ["Skip", "a result"]
MASKED = ("hunter2", "swordfish")


@frozen
class Outcome:
    """What a run over all acts has left."""

    ended: Ended
    copies: dict[str, Message]
    offsets: dict[str, int]
    started_ms: int

    def header(self, act: str, name: str) -> str:
        (value,) = (value for key, value in self.copies[act].headers() if key == name)
        assert isinstance(value, bytes)
        return value.decode()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    acts = [*LEAVES, *STAYS]
    started_ms = time.time_ns() // 1_000_000
    directory = tmp_path_factory.mktemp("hostile")
    topics = {"orders": 1, "shop.orders.dlq": 1}
    with EmbeddedBroker(topics=topics) as broker, Commands(directory) as commands:
        headers = [("trace", b"t1"), ("trace", None), ("wc-reason", b"FORGED"), ("wc-tags", b"a")]
        offsets = {
            act: broker.produce("orders", act.encode(), key=b"key " + act.encode(), headers=headers)
            for act in acts
        }

        def committed() -> dict[int, int]:
            return committed_offsets(broker.client_settings(), "shop", "orders")

        commands.application(SHOP)
        secrets = {"sasl.password": "${PASSWORD}", "ssl.key.password": MASKED[1]}
        client = kafka_of(broker) | secrets
        commands.configure({"kafka": client, "workers": {"charge": {}}})
        running = commands.start("run", "shop:app", env={"PASSWORD": MASKED[0]})
        wait_until(lambda: committed() == {0: len(acts)}, DEADLINE_S, "committed = end")
        ended = running.stop()
        copies = broker.read_all("shop.orders.dlq")
    by_act = {copy.value().decode(): copy for copy in copies}
    assert len(by_act) == len(copies), "no record has two copies"
    return Outcome(ended, by_act, {act: place[1] for act, place in offsets.items()}, started_ms)


def test_nothing_stops_and_everything_is_committed(outcome: Outcome) -> None:
    assert outcome.ended.code == 0
    summary = outcome.ended.summary()
    assert summary.pop("retried") == sum(attempts - 1 for _, attempts, _ in LEAVES.values())
    did = {"processed": len(STAYS) - 1, "dead_lettered": len(LEAVES), "skipped": 1}
    assert summary == did


def test_what_was_skipped_or_returned_leaves_no_copy(outcome: Outcome) -> None:
    assert outcome.copies.keys() == LEAVES.keys()


@pytest.mark.parametrize("act", LEAVES)
def test_the_copy_says_what_was_raised(outcome: Outcome, act: str) -> None:
    error_class, attempts, message = LEAVES[act]
    fatal = attempts == 1
    assert outcome.header(act, names.ERROR_CLASS) == error_class
    assert outcome.header(act, names.ERROR_MESSAGE) == message
    assert outcome.header(act, names.ATTEMPTS) == str(attempts)
    assert outcome.header(act, names.REASON) == ("FATAL" if fatal else "RETRIES_EXHAUSTED")
    stack = outcome.header(act, names.ERROR_STACK)
    assert "in charge" in stack or act == "RecursionError"
    assert len(stack.encode()) <= names.MAX_ERROR_STACK_BYTES


@pytest.mark.parametrize("act", LEAVES)
def test_the_copy_says_where_it_comes_from(outcome: Outcome, act: str) -> None:
    offset = outcome.offsets[act]
    assert outcome.header(act, names.ID) == f"orders/0/{offset}"
    assert outcome.header(act, names.ORIGINAL_TOPIC) == "orders"
    assert outcome.header(act, names.ORIGINAL_PARTITION) == "0"
    assert outcome.header(act, names.ORIGINAL_OFFSET) == str(offset)
    assert outcome.header(act, names.FORMAT) == "1"
    assert outcome.header(act, names.GROUP) == "shop"
    assert outcome.header(act, names.HANDLER) == "charge"
    assert outcome.header(act, names.APP_VERSION) == "7"
    first = int(outcome.header(act, names.FIRST_FAILURE))
    last = int(outcome.header(act, names.LAST_FAILURE))
    assert outcome.started_ms <= first <= last <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("act", LEAVES)
def test_the_copy_keeps_key_value_and_the_users_headers(outcome: Outcome, act: str) -> None:
    copy = outcome.copies[act]
    assert copy.key() == b"key " + act.encode()
    users = [(name, value) for name, value in copy.headers() if not name.startswith(names.PREFIX)]
    assert users == [("trace", b"t1"), ("trace", None)]
    assert outcome.header(act, names.TAGS) == "a"


@pytest.mark.parametrize("secret", MASKED)
def test_secrets_are_nowhere(outcome: Outcome, secret: str) -> None:
    assert secret not in outcome.ended.said
    assert "***" in outcome.ended.err
    for copy in outcome.copies.values():
        assert secret not in repr(copy.headers())


def test_failures_of_one_kind_at_one_place_have_one_fingerprint(outcome: Outcome) -> None:
    found = {act: outcome.header(act, names.ERROR_FINGERPRINT) for act in LEAVES}
    assert found["sys.exit"] == found["sys.exit(text)"]
    classes = {error_class for error_class, _, _ in LEAVES.values()}
    assert len(set(found.values())) == len(classes)


def test_the_cause_of_an_error_is_in_its_stack(outcome: Outcome) -> None:
    stack = outcome.header("listed as fatal", names.ERROR_STACK)
    assert stack.index("shop.InvalidOrder:") < stack.index("KeyError:")
