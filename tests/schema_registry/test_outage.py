"""A registry that does not say what a schema is: records wait, and none is lost or moved."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryError

from tests.schema_registry.orders import AvroOrder, unframed, with_id, written
from tests.schema_registry.registry import Registry
from tests.schema_registry.worker import app_with, reading
from tests.waiting import wait_until
from window_consumer.schema_registry.client import RegistryClient, RegistryOutageError
from window_consumer.schema_registry.config import SchemaConfig
from window_consumer.testing import DEAD_LETTERED, DONE

MOST_MOVED = 5
RECORDS = 40
RETRY = {"attempts": 2, "backoff": "10ms..50ms"}

OUTAGES = {
    "an error of the server": (503, {"error_code": 50301, "message": "no leader"}),
    "a refused login": (401, {"error_code": 401, "message": "Unauthorized"}),
    "a wrong path": (404, {"error_code": 404, "message": "HTTP 404 Not Found"}),
    "a page of a proxy": (200, b"<html>Log in</html>"),
    "the answer of another service": (200, {"status": "ok"}),
    "a schema that is no text": (200, {"schema": 5}),
    "a schema that is cut off": (200, {"schema": '{"type": "rec', "schemaType": "AVRO"}),
    "schemas of another format": (200, {"schema": "{}", "schemaType": "JSON"}),
}


@pytest.mark.parametrize("answer", OUTAGES.values(), ids=OUTAGES)
def test_records_wait_for_a_registry_that_does_not_say_what_a_schema_is(
    answer: tuple[int, Any], registry: Registry
) -> None:
    got: list[int] = []

    def charge(order: Any) -> None:
        got.append(order.id)

    with reading(app_with(charge, AvroOrder), registry, "avro", retry=RETRY) as app:
        value = written(registry.url, "avro")
        registry.broken = answer
        sent = app.send_many("orders", [value] * RECORDS)
        app.advance("2s")
        assert len(app.dead_letters) <= MOST_MOVED
        registry.broken = None
        app.advance("30s")
        lost = {each.record.offset for each in sent if each.outcome is not DONE}
        assert len(lost) == len(app.dead_letters)
    assert len(got) == RECORDS - len(lost)


def test_a_registry_that_is_away_is_an_outage() -> None:
    def charge(order: Any) -> None: ...

    with Registry() as away:
        value = written(away.url, "avro")
        app = reading(app_with(charge, AvroOrder), away, "avro", retry=RETRY)
    with app:
        sent = app.send_many("orders", [value] * 50)
        app.advance("2s")
        assert len(app.dead_letters) <= MOST_MOVED
        assert DONE not in {each.outcome for each in sent}


@pytest.mark.parametrize("answer", [(200, b"<html>"), (200, {}), (200, []), (200, {"schema": 5})])
def test_what_is_no_registrys_answer_says_nothing_about_a_subject(
    answer: tuple[int, Any], registry: Registry
) -> None:
    client = RegistryClient(SchemaConfig(registry=(registry.url,), format="avro"))
    registry.broken = answer
    with pytest.raises(RegistryOutageError, match=r"schema\.registry"):
        client.latest_of("orders-value")


def test_poison_in_an_outage_still_is_poison(registry: Registry) -> None:
    def charge(order: Any) -> None: ...

    with reading(app_with(charge, AvroOrder), registry, "avro", retry=RETRY) as app:
        good = written(registry.url, "avro")
        registry.broken = OUTAGES["an error of the server"]
        sent = app.send_many("orders", [good] * 30 + [unframed("avro")])
        app.advance("2s")
        registry.broken = None
        app.advance("30s")
        assert sent[-1].outcome is DEAD_LETTERED
        assert app.send("orders", with_id(good, 50)).outcome is DEAD_LETTERED
        assert app.send("orders", good).outcome is DONE


@pytest.mark.parametrize(
    ("schema_id", "answer", "raised"),
    [
        (1, None, None),
        (99, None, SchemaRegistryError),
        (1, OUTAGES["an error of the server"], RegistryOutageError),
    ],
)
def test_threads_that_begin_together_ask_once(
    schema_id: int, answer: tuple[int, Any] | None, raised: type | None, registry: Registry
) -> None:
    written(registry.url, "avro")
    client = RegistryClient(SchemaConfig(registry=(registry.url,), format="avro"))
    registry.gate.clear()
    registry.broken = answer
    together = threading.Barrier(8, timeout=30)

    def ask() -> None:
        together.wait()
        client.get_schema(schema_id)

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask) for _ in range(8)]
        wait_until(lambda: registry.asked)
        registry.gate.set()
        errors = [each.exception(30) for each in asked]
    if raised is None:
        assert errors == [None] * 8
    else:
        assert {type(each) for each in errors} == {raised}
    if answer is None:  # a late thread may ask again after an outage
        assert len(registry.asked) == 1
