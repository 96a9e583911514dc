"""CloudEvents and signatures, read with the official libraries."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured
from cloudevents.core.formats.json import JSONFormat
from standardwebhooks import Webhook, WebhookVerificationError

from tests.push.service import Posted, Service
from tests.push.worker import pushing
from window_consumer.push.config import HttpConfig
from window_consumer.push.request import RequestMaker
from window_consumer.push.signature import SignConfig, Signer, key_in
from window_consumer.testing import make_record

SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + b64encode(bytes(range(1, 33))).decode()
AT_MS = 1_700_000_000_123


def event_in(request: Posted) -> BaseCloudEvent:
    return from_binary(HTTPMessage(dict(request.headers), request.body), JSONFormat())


def event_of(service: Service, value: Any, key: Any = None, **more: Any) -> BaseCloudEvent:
    with pushing(service.url, {"format": "cloudevents"}) as worker:
        worker.send("orders", value, key, partition=2, timestamp=AT_MS, **more)
    return event_in(service.posted[-1])


def test_a_record_is_an_event_in_binary_mode(service: Service) -> None:
    event = event_of(
        service, {"amount": 7}, "customer 7 €", headers={"content-type": "application/json"}
    )
    assert event.get_id() == "orders/2/0"
    assert event.get_source() == "/orders/2"
    assert event.get_type() == "orders"
    assert event.get_specversion() == "1.0"
    time = event.get_time()
    assert time is not None
    assert round(time.timestamp() * 1000) == AT_MS
    assert event.get_datacontenttype() == "application/json"
    assert event.get_extension("partitionkey") == "customer 7 €"
    assert event.get_data() == {"amount": 7}
    assert service.posted[-1].header("Wc-Attempt") == "1"


def test_what_is_an_event_in_kafka_stays_the_same_event(service: Service) -> None:
    headers = {
        "ce_specversion": "1.0",
        "ce_id": "7",
        "ce_source": "/shop",
        "ce_type": 'paid "now" 100%',
        "ce_region": "eu",
        "content-type": "text/plain",
    }
    event = event_of(service, "hello", headers=headers)
    assert (event.get_id(), event.get_source()) == ("7", "/shop")
    assert event.get_type() == 'paid "now" 100%'
    assert event.get_extension("region") == "eu"
    assert not [name for name, _ in service.posted[-1].headers if "Header-" in name]


def test_an_event_in_the_value_is_sent_as_it_is(service: Service) -> None:
    event = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "paid", "data": [1]}
    headers = {"content-type": "application/cloudevents+json"}
    with pushing(service.url, {"format": "cloudevents"}) as worker:
        worker.send("orders", event, headers=headers)
    (request,) = service.posted
    found = from_structured(HTTPMessage(dict(request.headers), request.body), JSONFormat())
    assert found.get_id() == "7"
    assert json.dumps(found.get_data()) == "[1]"
    assert request.header("ce-id") is None


def test_a_batch_is_an_array_of_events(service: Service) -> None:
    with pushing(service.url, {"format": "cloudevents"}, batch={"max_records": 10}) as worker:
        kind = {"content-type": "application/json"}
        worker.send("orders", {"amount": 1}, headers=kind, partition=0, run=False)
        worker.send("orders", b"\xff", partition=0, run=False)
        worker.send("orders", None, partition=0)
    (request,) = service.posted
    assert request.header("Content-Type") == "application/cloudevents-batch+json"
    events = [JSONFormat().read(None, json.dumps(each)) for each in json.loads(request.body)]
    assert [each.get_data() for each in events] == [{"amount": 1}, b"\xff", None]
    assert len({each.get_id() for each in events}) == 3


@pytest.mark.parametrize("value", [b'{"amount": NaN}', b'{"amount": 1e999}'])
def test_numbers_that_json_lacks_make_no_batch_invalid(service: Service, value: bytes) -> None:
    with pushing(service.url, {"format": "cloudevents"}, batch={"max_records": 10}) as worker:
        kind = {"content-type": "application/json"}
        worker.send("orders", value, headers=kind, partition=0, run=False)
        worker.send("orders", {"amount": 1}, headers=kind, partition=0)
    (request,) = service.posted
    first, second = json.loads(request.body, parse_constant=pytest.fail)
    assert b64decode(first["data_base64"]) == value
    assert second["data"] == {"amount": 1}


def signed(service: Service, **sign: str) -> tuple[Mapping[str, str], bytes]:
    with pushing(service.url, {"sign": {"secret": SECRET, **sign}}) as worker:
        worker.send("orders", {"amount": 7})
    (request,) = service.posted
    return dict(request.headers), request.body


def maker(secret: str, now_ms: int) -> RequestMaker:
    config = HttpConfig(url="http://a/", sign=SignConfig(secret=secret))
    return RequestMaker(config, lambda: now_ms)


@pytest.fixture
def now_ms() -> int:
    """The time by which the official library judges a signature's age."""
    from time import time_ns  # noqa: PLC0415 - nothing else here reads a clock

    return time_ns() // 1_000_000


def test_the_official_library_accepts_a_signature(now_ms: int) -> None:
    record = make_record(b'{"amount": 7}', topic="orders.v1")
    request = maker(SECRET, now_ms).of_record(record)
    assert Webhook(SECRET).verify(request.body, dict(request.headers)) == {"amount": 7}
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(request.body, dict(request.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.body + b" ", dict(request.headers))


def test_a_batch_is_signed_too(now_ms: int) -> None:
    records = [make_record(str(number), offset=number) for number in range(3)]
    request = maker(SECRET, now_ms).of_batch(records)
    assert len(Webhook(SECRET).verify(request.body, dict(request.headers))) == 3


def test_services_with_the_secret_before_accept_it(now_ms: int) -> None:
    signer = Signer(SignConfig(secret=OTHER, previous_secret=SECRET))
    headers = dict(signer.headers("7", b"{}", now_ms))
    assert Webhook(SECRET).verify(b"{}", headers) == Webhook(OTHER).verify(b"{}", headers) == {}


def test_requests_carry_the_signature(service: Service) -> None:
    headers, _ = signed(service)
    assert headers["webhook-id"] == headers["Idempotency-Key"]
    assert headers["webhook-timestamp"].isdigit()
    version, _, signature = headers["webhook-signature"].partition(",")
    assert (version, len(b64decode(signature))) == ("v1", 32)


def test_an_id_with_a_full_stop_cannot_be_taken_for_another(now_ms: int) -> None:
    signer = Signer(SignConfig(secret=SECRET))
    assert dict(signer.headers("a.1%", b"", now_ms))["webhook-id"] == "a%2E1%25"


@pytest.mark.parametrize("secret", ["hunter2", "whsec_", "whsec_ä", "whsec_AAAA", "whsec_A" * 40])
def test_a_secret_that_is_none_is_found(secret: str) -> None:
    assert key_in(secret) is None
