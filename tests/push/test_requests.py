"""What is posted: the value, and headers that say where a record is from."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from tests.push.service import Service, closed_port, socket_that_says, statuses
from tests.push.worker import pushing
from window_consumer.push.client import proxy_of
from window_consumer.push.config import HttpConfig
from window_consumer.push.request import RequestMaker
from window_consumer.push.request_headers import MOST_HEADER_BYTES, MOST_KEY_BYTES
from window_consumer.testing import make_record

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def posted(service: Service, value: Any = "one", key: Any = None, **more: Any) -> Any:
    """Return the request of a record."""
    with pushing(service.url) as worker:
        worker.send("orders", value, key, **more)
    return service.posted[-1]


def test_a_request_has_the_value_and_its_position(service: Service) -> None:
    request = posted(
        service, b"\x00one\xff", "customer 7", partition=2, timestamp=1_700_000_000_000
    )
    assert request.body == b"\x00one\xff"
    assert request.path == "/events"
    names = ("Topic", "Partition", "Offset", "Key", "Timestamp", "Attempt", "Id")
    assert [request.header(f"Wc-{name}") for name in names] == [
        "orders",
        "2",
        "0",
        "customer 7",
        "1700000000000",
        "1",
        "orders/2/0",
    ]
    assert request.header("Idempotency-Key") == "orders/2/0"
    assert request.header("Content-Type") == "application/octet-stream"
    assert request.header("Content-Length") == "5"


def test_a_tombstone_differs_from_an_empty_value(service: Service) -> None:
    assert posted(service, None).header("Wc-Tombstone") == "true"
    empty = posted(service, b"")
    assert (empty.body, empty.header("Wc-Tombstone")) == (b"", None)


@pytest.mark.parametrize("key", [b"\xff\x00", "Zürich".encode(), b" a", b"a\r\nWc-Topic: x", b"\t"])
def test_a_key_that_no_header_can_hold_is_in_base64(key: bytes, service: Service) -> None:
    request = posted(service, key=key)
    assert request.header("Wc-Key") is None
    assert request.header("Wc-Base64-Key") == b64encode(key).decode()
    assert request.header("Wc-Topic") == "orders"


def test_a_key_that_is_too_long_is_left_out(service: Service) -> None:
    request = posted(service, key=b"k" * (MOST_KEY_BYTES + 1))
    assert request.header("Wc-Key") is None
    assert request.header("Wc-Key-Omitted") == str(MOST_KEY_BYTES + 1)


@pytest.mark.parametrize("given", ["order 7", "é", "x" * 300, "a\nb"])
def test_an_id_is_in_printable_letters(given: str, service: Service) -> None:
    found = posted(service, headers={"wc-id": given}).header("Idempotency-Key")
    assert found.startswith("sha256:")
    assert found.isascii()


def test_the_id_of_the_producer_is_the_idempotency_key(service: Service) -> None:
    assert posted(service, headers={"wc-id": "mail-7"}).header("Idempotency-Key") == "mail-7"


def test_a_retry_in_another_topic_has_the_first_position_and_the_same_id(service: Service) -> None:
    service.answer = statuses(500, 200)
    retry = {"attempts": 1, "levels": ["10s"], "on_failure": "overtake"}
    with pushing(service.url, retry=retry) as worker:
        worker.send("orders", "one", "k", partition=3, timestamp=1_700_000_000_000)
        worker.advance("11s")
    first, second = service.posted
    names = ("Wc-Topic", "Wc-Partition", "Wc-Offset", "Idempotency-Key", "Wc-Timestamp", "Wc-Key")
    assert [first.header(name) for name in names] == [second.header(name) for name in names]
    assert (first.header("Wc-Attempt"), second.header("Wc-Attempt")) == ("1", "2")


def test_the_records_headers_come_behind_a_prefix_in_their_order(service: Service) -> None:
    headers = [
        ("type", "paid"),
        ("type", "again"),
        ("Größe €", "1"),
        ("raw", b"\xff"),
        ("no", None),
    ]
    request = posted(service, headers=headers)
    found = [pair for pair in request.headers if "Header-" in pair[0]]
    assert found == [
        ("Wc-Header-type", "paid"),
        ("Wc-Header-type", "again"),
        ("Wc-Header-Gr%C3%B6%C3%9Fe%20%E2%82%AC", "1"),
        ("Wc-Base64-Header-raw", "/w=="),
        ("Wc-Header-no", ""),
    ]


def test_no_header_of_a_record_replaces_one_of_ours(service: Service) -> None:
    headers = [("wc-topic", "x"), ("host", "x"), ("Content-Length", "7"), ("x\r\nHost", "x")]
    request = posted(service, headers=headers)
    assert request.header("Wc-Topic") == "orders"
    assert request.header("Host") == f"127.0.0.1:{service.port}"
    assert request.header("Content-Length") == "3"
    assert request.header("Wc-Header-host") == "x"
    assert request.header("Wc-Header-x%0D%0AHost") == "x"


def test_the_records_headers_are_bounded(service: Service) -> None:
    headers = [(f"h{number:03}", "v" * 100) for number in range(500)]
    request = posted(service, headers=[*headers, ("large", b"\xff" * 1_000_000)])
    kept = [pair for pair in request.headers if pair[0].startswith("Wc-Header-")]
    assert sum(len(name) + len(value) for name, value in kept) <= MOST_HEADER_BYTES
    assert request.header("Wc-Headers-Omitted") == str(501 - len(kept))


@pytest.mark.parametrize("form", ["raw", "cloudevents"])
def test_a_request_has_no_more_headers_than_common_servers_take(form: str) -> None:
    """Python's http.server, gunicorn and Apache take 100, Node.js 16 KiB of them."""
    headers = {f"{prefix}{number}": "v" for number in range(200) for prefix in ("h", "ce_h")}
    headers |= {"content-type": "t" * 100_000, "tracestate": "t" * 100_000, "traceparent": TRACE}
    headers |= {"n" * 100_000: "", **{f"ce_long{number}": "v" * 4000 for number in range(9)}}
    maker = RequestMaker(HttpConfig(url="http://127.0.0.1/", format=form), lambda: 0)  # type: ignore[arg-type] # one of its two
    found = maker.of_record(make_record("one", "k" * MOST_KEY_BYTES, headers=headers)).headers
    assert len(found) < 90
    assert sum(len(name) + len(value) for name, value in found) < 14_000
    names = [name for name, _ in found]
    assert "traceparent" in names
    assert ("Content-Type", "application/octet-stream") in found
    assert {"ce-id", "ce-type", "ce-source"} <= {*names} or form == "raw"


def test_the_trace_of_the_record_goes_on(service: Service) -> None:
    request = posted(service, headers={"traceparent": TRACE, "tracestate": "a=1"})
    assert request.header("traceparent") == TRACE
    assert request.header("tracestate") == "a=1"
    assert posted(service, headers={"traceparent": "no"}).header("traceparent") is None


def test_the_type_of_a_record_is_that_of_the_request(service: Service) -> None:
    request = posted(service, headers={"content-type": "application/json"})
    assert request.header("Content-Type") == "application/json"


def test_the_configuration_adds_headers(service: Service) -> None:
    given = {"headers": {"Authorization": "Bearer abcdefgh", "Content-Type": "text/plain"}}
    with pushing(service.url, given) as worker:
        worker.send("orders", "one")
    (request,) = service.posted
    assert request.header("Authorization") == "Bearer abcdefgh"
    assert [value for name, value in request.headers if name == "Content-Type"] == ["text/plain"]


def test_the_configuration_replaces_our_usual_headers(service: Service) -> None:
    names = ["Accept", "Accept-Encoding", "User-Agent"]
    usual = posted(service)
    with pushing(service.url, {"headers": {name.lower(): "x" for name in names}}) as worker:
        worker.send("orders", "one")
    found = {
        name: [value for other, value in service.posted[-1].headers if other.lower() == name]
        for name in map(str.lower, names)
    }
    assert found == {name.lower(): ["x"] for name in names}
    assert [usual.header(name) for name in names] == ["*/*", "identity", "window-consumer"]


@pytest.mark.parametrize("size", [1, 16 * 1024, 16 * 1024 + 1, 1024**2, 3_000_000])
def test_a_value_of_any_size_arrives(size: int, service: Service) -> None:
    value = b"v" * size
    request = posted(service, value)
    assert (request.body, request.header("Content-Length")) == (value, str(size))
    assert request.header("Wc-Topic") == "orders"


def test_a_short_value_is_sent_together_with_its_headers() -> None:
    """Each write is a system call here, and another read in the service."""
    heard: list[bytes] = []
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with socket_that_says(answer, heard) as url, pushing(url) as worker:
        worker.send("orders", "one")
    assert [each[-7:] for each in heard] == [b"\r\n\r\none"]


def test_as_many_connections_are_kept_as_calls_run(service: Service) -> None:
    with pushing(service.url, concurrency=3) as worker:
        worker.send_many("orders", [str(each) for each in range(60)])
    assert len(service.posted) == 60
    assert len({each.connection for each in service.posted}) <= 3


def test_proxies_of_the_environment_are_used_on_request(
    monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    proxy = f"http://127.0.0.1:{closed_port()}"
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
    monkeypatch.setenv("no_proxy", "orders.internal")
    assert posted(service).body == b"one"
    assert proxy_of(HttpConfig(url=service.url)) is None
    assert proxy_of(HttpConfig(url=service.url, proxy=True)) == proxy
    assert proxy_of(HttpConfig(url="http://orders.internal/", proxy=True)) is None
    assert proxy_of(HttpConfig(url=service.url, proxy="http://other:3128")) == "http://other:3128"
