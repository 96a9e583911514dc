"""Whatever bytes clients send and records have: what arrives is the same, or a clear error."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from attrs import define, field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sqs.endpoint import CREDENTIALS, endpoint
from tests.sqs.memory_queue import MemoryQueue
from tests.sqs.test_signatures import BODY, check, refusal, signed, with_headers
from window_consumer.config.sections.listening import ListenAddress
from window_consumer.sqs.actions import REFUSED
from window_consumer.sqs.attributes import (
    ENCODING,
    TYPES_HEADER,
    MessageAttribute,
    attributes_of,
    headers_of,
    is_text,
    md5_of,
    read_attributes,
)
from window_consumer.sqs.endpoint import (
    MOST_BODIES_BYTES,
    MOST_BODY_BYTES,
    Endpoint,
    EndpointConfig,
    EndpointFigures,
)
from window_consumer.sqs.errors import SqsErrorKind
from window_consumer.sqs.messages import MessageSelection, OutgoingMessage
from window_consumer.sqs.parameters import CallParameters
from window_consumer.sqs.queue import QueuedMessage

ALL = CallParameters({"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]})
CALLS = [
    *("CreateQueue", "GetQueueUrl", "ListQueues", "GetQueueAttributes", "SetQueueAttributes"),
    *("SendMessage", "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch"),
    *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch", *REFUSED),
]
MEMBERS = [
    *("QueueUrl", "QueueName", "QueueNamePrefix", "NextToken", "MaxResults", "AttributeNames"),
    *("Attributes", "MessageBody", "MessageAttributes", "MessageSystemAttributes", "DelaySeconds"),
    *("MessageGroupId", "MessageDeduplicationId", "Entries", "Id", "ReceiptHandle"),
    *("VisibilityTimeout", "MaxNumberOfMessages", "MessageAttributeNames", "DataType"),
    *("StringValue", "BinaryValue"),
]
TEXT = st.text(st.characters(codec="utf-8"))
NAMES = st.text("abzAZ09_-", max_size=12).map("h{}".format)
"""Names of message attributes."""

CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""On a busy machine all of them take long."""

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["http://x/0/orders", "orders", "String", "Number", "Binary", "All"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(MEMBERS) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def queued(
    value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes]]
) -> QueuedMessage:
    return QueuedMessage(
        message_id="id",
        receipt_handle="handle",
        value=value,
        key=key,
        headers=headers,
        topic="topic",
        partition=0,
        offset=3,
        timestamp_ms=1,
        first_received_ms=2,
        attempt=1,
    )


@given(
    st.binary(min_size=1),
    st.none() | st.binary(),
    st.dictionaries(NAMES, st.binary(min_size=1), max_size=9),
)
@CALM
def test_a_record_that_a_client_sends_on_is_the_same(
    value: bytes, key: bytes | None, headers: Mapping[str, bytes]
) -> None:
    message = queued(value, key, [*headers.items()])
    received = MessageSelection.read(ALL).as_json(message, fifo=True)
    received = json.loads(json.dumps(received, ensure_ascii=False).encode())
    attributes = received.get("MessageAttributes", {})
    call = CallParameters({"MessageBody": received["Body"], "MessageAttributes": attributes})
    sent = OutgoingMessage.read(call, MemoryQueue("orders"))
    assert sent.value == value
    assert {name: each for name, each in sent.headers if name != TYPES_HEADER} == headers
    attributes.pop(ENCODING, None)
    assert {each.name: each.as_json() for each in attributes_of(sent.headers)} == attributes


@given(st.lists(st.tuples(TEXT, st.binary())), st.binary())
@CALM
def test_any_headers_can_be_received(headers: list[tuple[str, bytes]], types: bytes) -> None:
    for given_headers in (headers, [*headers, (TYPES_HEADER, types)]):
        message = queued(b"x", b"k", given_headers)
        received = MessageSelection.read(ALL).as_json(message, fifo=False)
        json.dumps(received, ensure_ascii=False).encode()
        last = {name: value for name, value in headers if name != "AWSTraceHeader"}
        found: Any = received.get("MessageAttributes", {})
        for name, value in last.items():
            if name != TYPES_HEADER:
                each = found[name]
                binary = each.get("BinaryValue")
                assert value == (
                    each["StringValue"].encode() if binary is None else b64decode(binary)
                )


@given(
    st.dictionaries(
        NAMES,
        st.tuples(st.sampled_from(["String", "Number.int", "Binary.png"]), st.integers()),
        max_size=10,
    )
)
@CALM
def test_types_of_attributes_survive_a_topic(chosen: Mapping[str, tuple[str, int]]) -> None:
    attributes = [
        MessageAttribute(name, kind, str(n).encode()) for name, (kind, n) in chosen.items()
    ]
    read = read_attributes({each.name: each.as_json() for each in attributes})
    assert list(read) == attributes
    again = attributes_of(headers_of(read))
    assert sorted(again, key=lambda each: each.name) == sorted(read, key=lambda each: each.name)
    assert md5_of(again) == md5_of(attributes)


def test_sums_of_attributes_are_those_of_amazon() -> None:
    stamp = MessageAttribute("timestamp", "Number.java.lang.Long", b"1493147359900")
    assert md5_of([stamp]) == "2e2e4876d8e0bd6b8c2c8f556831c349"
    several = [
        MessageAttribute("id", "String", b"2018fc74-4f77-1a5a-1be0-c2d037d5052b"),
        MessageAttribute("contentType", "String", b"application/json"),
        MessageAttribute("timestamp", "Number.java.lang.Long", b"1602845432024"),
    ]
    assert md5_of(several) == md5_of(several[::-1]) == "b12289320bb6e494b18b645ef562b4a9"


@given(st.text())
@CALM
def test_texts_are_those_of_xml(text: str) -> None:
    allowed = all(
        each in "\t\n\r"
        or 0x20 <= ord(each) < 0xD800
        or 0xE000 <= ord(each) < 0xFFFE
        or ord(each) > 0xFFFF
        for each in text
    )
    assert is_text(text) is allowed


@define
class Request:
    """A request of ASGI, and its answer."""

    parts: Sequence[bytes]
    headers: Mapping[str, str]
    status: int = 0
    body: bytes = b""
    _left: list[dict[str, Any]] = field(factory=list)

    async def receive(self) -> dict[str, Any]:
        if self._left:
            return self._left.pop(0)
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.body += message.get("body", b"")

    async def ask(self, served: Endpoint) -> Request:
        self._left = [
            {"type": "http.request", "body": each, "more_body": at + 1 < len(self.parts)}
            for at, each in enumerate(self.parts)
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "scheme": "http",
            "raw_path": b"/",
            "query_string": b"",
            "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"localhost"), *_raw(self.headers)],
        }
        await served.application()(scope, self.receive, self.send)
        return self


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]


def endpoint_in_memory(figures: EndpointFigures, **config: Any) -> Endpoint:
    """Return an endpoint without a socket; a loop has to be running."""
    address = ListenAddress("127.0.0.1", 0)
    queues = [MemoryQueue("orders"), MemoryQueue("mails.fifo", fifo=True)]
    served = Endpoint(queues, EndpointConfig(address=address, **config), figures)
    served.start()
    return served


def asked(*requests: Request, **config: Any) -> EndpointFigures:
    figures = EndpointFigures()

    async def ask_all() -> None:
        served = endpoint_in_memory(figures, **config)
        for each in requests:
            await each.ask(served)

    asyncio.run(ask_all())
    return figures


@given(st.sampled_from(CALLS), st.dictionaries(st.sampled_from(MEMBERS), VALUES, max_size=6))
@CALM
def test_no_parameters_are_a_bug(call: str, members: dict[str, Any]) -> None:
    members.pop("WaitTimeSeconds", None)
    usual = {"QueueUrl": "http://x/0/orders", "QueueName": "orders", "MessageBody": "x"}
    request = Request(
        [json.dumps({**usual, **members}).encode()], {"x-amz-target": f"AmazonSQS.{call}"}
    )
    figures = asked(request)
    assert figures.failed == 0, request.body
    assert isinstance(json.loads(request.body), dict)
    assert (request.status == 200) is (figures.refused == 0)


@given(
    st.lists(st.binary(), min_size=1), st.text(st.characters(max_codepoint=255, min_codepoint=32))
)
@CALM
def test_no_bytes_are_a_bug(parts: list[bytes], target: str) -> None:
    for chosen in ("AmazonSQS.SendMessage", f"AmazonSQS.{target}", target):
        figures = asked(Request(parts, {"x-amz-target": chosen}))
        assert (figures.requests, figures.failed) == (1, 0)


@given(
    st.text(st.characters(max_codepoint=255, min_codepoint=32)),
    st.text(st.characters(max_codepoint=255, min_codepoint=32)),
)
@CALM
def test_no_signature_is_a_bug(authorization: str, date: str) -> None:
    head = signed()
    for chosen in (
        with_headers(head, authorization=authorization),
        with_headers(head, authorization=f"AWS4-HMAC-SHA256 {authorization}"),
        with_headers(head, x_amz_date=date),
        with_headers(head, x_amz_security_token=date, x_other=authorization),
    ):
        if chosen.headers != head.headers:
            headers = {name: each for name, each in chosen.headers.items() if name != "host"}
            figures = asked(Request([BODY], headers), credentials=CREDENTIALS)
            assert (figures.refused_signatures, figures.failed) == (1, 0)


@given(
    st.binary(),
    st.dictionaries(
        st.from_regex("[a-z]{1,8}", fullmatch=True),
        st.text(st.characters(min_codepoint=33, max_codepoint=126)),
    ),
)
@settings(CALM, max_examples=50)
def test_any_request_of_botocore_is_taken_and_any_other_body_is_not(
    body: bytes, headers: Mapping[str, str]
) -> None:
    head = signed(body, **{f"x-{name}": value for name, value in headers.items()})
    check(head, body)
    assert refusal(head, body + b"\n") is SqsErrorKind.WRONG_SIGNATURE


def test_the_bodies_of_all_clients_are_bounded() -> None:
    async def ask_all() -> list[int]:
        served = endpoint_in_memory(EndpointFigures())
        size = MOST_BODY_BYTES
        many = MOST_BODIES_BYTES // size + 3
        open_ = asyncio.Event()
        requests = [
            _HeldRequest([bytes(size), b""], {"x-amz-target": "AmazonSQS.ListQueues"}, held=open_)
            for _ in range(many)
        ]
        tasks = [asyncio.create_task(each.ask(served)) for each in requests]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        open_.set()
        return sorted(each.status for each in await asyncio.gather(*tasks))

    statuses = asyncio.run(ask_all())
    assert statuses.count(503) == 3
    assert statuses.count(400) == len(statuses) - 3  # zeros are no JSON


@define
class _HeldRequest(Request):
    """A request whose second part comes late."""

    held: asyncio.Event = field(kw_only=True)

    async def receive(self) -> dict[str, Any]:
        if len(self._left) == 1:
            await self.held.wait()
        return await super().receive()


def test_a_slow_client_holds_up_nobody() -> None:
    head = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n12"
    with endpoint(MemoryQueue("orders")) as served:
        address = ("127.0.0.1", served.port)
        with socket.create_connection(address) as half, socket.create_connection(address):
            half.sendall(head)
            assert served.ask("ListQueues").status == 200


def test_a_body_in_chunks_without_end_is_refused() -> None:
    chunk = bytes(1024 * 1024)
    request = Request([chunk] * 20, {"x-amz-target": "AmazonSQS.SendMessage"})
    figures = asked(request)
    assert (request.status, figures.refused) == (413, 1)
    assert len(request._left) > 10


@pytest.mark.parametrize("text", ["1e400", "-0", "9" * 5000, '"\\ud800"', "[[]]", "{}"])
def test_numbers_and_texts_of_json_that_are_none_here(text: str) -> None:
    body = f'{{"QueueUrl": "http://x/0/orders", "MaxNumberOfMessages": {text}}}'.encode()
    request = Request([body], {"x-amz-target": "AmazonSQS.ReceiveMessage"})
    assert asked(request).failed == 0
    assert request.status == 400
