"""The endpoint that clients of SQS call: reads requests, checks their signatures, and responds.

It speaks the JSON protocol. Many clients may wait for messages at once, without a thread for each.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from attrs import define, field, frozen
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from window_consumer.config.sections.listening import ListenAddress, TlsConfig
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.limited_log import Repetition
from window_consumer.runtime.log import own_logger
from window_consumer.sqs.actions import Answer, QueueActions
from window_consumer.sqs.errors import SqsError, SqsErrorKind, shown
from window_consumer.sqs.parameters import CallParameters
from window_consumer.sqs.queue import Queue
from window_consumer.sqs.signature import RequestHead, SignatureCheck

MOST_BODY_BYTES: Final = 8 * 1024 * 1024
"""The longest body of a request: JSON escapes make a message of 1 MiB up to six times as long."""

MOST_BODIES_BYTES: Final = 16 * MOST_BODY_BYTES
"""The most bytes of all requests that are being read."""

_PREFIX: Final = "AmazonSQS."
_JSON: Final = "application/x-amz-json-1.0"

_OLD_PROTOCOL: Final = (
    "this endpoint speaks the JSON protocol of SQS (X-Amz-Target: AmazonSQS.…, POST), not the query"
    " protocol: use a client of November 2023 or later, such as boto3 1.28.82"
)

_log = own_logger()

T = TypeVar("T")


@frozen(kw_only=True)
class EndpointConfig:
    """Where the endpoint listens, and which clients may call it."""

    address: ListenAddress
    advertise: str | None = None
    """The address in the URLs of queues; None for the address that a client called."""
    credentials: Mapping[str, str] = field(default=MappingProxyType({}), repr=False)
    """Secrets by access key. Without any, requests need no signature."""
    tls: TlsConfig = field(factory=TlsConfig)


@define
class EndpointFigures:
    """Counts since the start. The event loop writes them; any thread may read."""

    requests: int = 0
    refused: int = 0
    """Requests answered with a client error."""
    refused_signatures: int = 0
    """Of these, requests whose signature was missing or wrong."""
    failed: int = 0
    """Requests answered with a server error, which clients repeat."""
    waiting: int = 0
    """Clients that are waiting for messages."""


class Endpoint:
    """Reads requests and answers them. Owner: the event loop of the server."""

    def __init__(self, queues: Sequence[Queue], config: EndpointConfig, figures: EndpointFigures):
        self._actions = QueueActions(queues)
        self._config = config
        self._figures = figures
        self._signatures = SignatureCheck(config.credentials) if config.credentials else None
        self._waiting: set[asyncio.Task[Answer]] = set()
        self._body_bytes = 0
        self._repetition: Repetition | None = None

    def application(self) -> ASGIApp:
        """Return the ASGI application."""
        return self._on_request

    def start(self) -> None:
        """Start nothing: requests come by themselves."""
        self._repetition = Repetition(asyncio.get_running_loop().time)

    def close(self) -> None:
        """End the requests of clients that wait for messages."""
        for each in self._waiting:
            each.cancel()

    async def _on_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = str(uuid4())
        self._figures.requests += 1
        headers = _headers_of(scope)
        is_json = "x-amz-target" in headers
        try:
            answer = await self._answer(scope, headers, receive)
            body, status, more = _encoded(answer), 200, {}
        except SqsError as error:
            self._count(error, scope)
            body = error.as_json() if is_json else error.as_xml(request_id)
            status, more = error.kind.status, error.headers
        except _GoneError:
            return
        except Exception:
            _log.exception(
                "sqs: a request failed; please report this bug",
                extra={"event": LogEvent.SQS_REQUEST_FAILED},
            )
            bug = SqsError(SqsErrorKind.BUG, "this is a bug; see the log of the worker")
            self._count(bug, scope)
            body, status, more = bug.as_json(), bug.kind.status, bug.headers
        response = Response(
            body, status, {"x-amzn-requestid": request_id, **more}, _JSON if is_json else "text/xml"
        )
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> Answer:
        name = headers.get("x-amz-target", "")
        if scope["method"] != "POST" or not name.startswith(_PREFIX):
            raise SqsError(SqsErrorKind.UNSUPPORTED, _OLD_PROTOCOL)
        url = _url_of(scope, headers)
        if self._signatures is None:
            _check_host(headers, self._config)
            body = await self._body(headers, receive)
        else:
            head = RequestHead(method="POST", url=url, headers=headers)
            claim = self._signatures.claim_of(head)
            body = await self._body(headers, receive)
            self._signatures.check(claim, head, body)
        name = name.removeprefix(_PREFIX)
        call = CallParameters.parse(body)
        base_url = self._base_url(scope["scheme"], headers)
        if name != "ReceiveMessage":
            return await self._actions.answer(name, call, base_url)
        return await self._received(call, base_url, receive)

    async def _received(self, call: CallParameters, base_url: str, receive: Receive) -> Answer:
        """Answer ReceiveMessage, but lease nothing to a client that has disconnected."""
        async with self._as_waiting(
            self._actions.answer("ReceiveMessage", call, base_url)
        ) as answering:
            if await _is_gone_before(answering, receive):
                answering.cancel()
                with suppress(asyncio.CancelledError):
                    await self._actions.give_back(call, await answering)
                raise _GoneError
            try:
                return answering.result()
            except asyncio.CancelledError:
                return {}  # the endpoint closes

    @asynccontextmanager
    async def _as_waiting(
        self, call: Coroutine[None, None, Answer]
    ) -> AsyncIterator[asyncio.Task[Answer]]:
        task = asyncio.create_task(call)
        self._waiting.add(task)
        self._figures.waiting += 1
        try:
            yield task
        finally:
            self._waiting.discard(task)
            self._figures.waiting -= 1
            task.cancel()

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        """Return the body of a request; raise SqsError if it, or the sum of all, is too large."""
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > MOST_BODY_BYTES:
            raise _too_large()
        parts, size = [], 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _GoneError
                part = message.get("body", b"")
                size += len(part)
                self._body_bytes += len(part)
                if size > MOST_BODY_BYTES:
                    raise _too_large()
                if self._body_bytes > MOST_BODIES_BYTES:
                    why = "too much is being sent at once; try again"
                    raise SqsError(SqsErrorKind.UNAVAILABLE, why)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._body_bytes -= size

    def _base_url(self, scheme: str, headers: Mapping[str, str]) -> str:
        at = self._config.advertise or headers.get("host") or str(self._config.address)
        return at.rstrip("/") if "://" in at else f"{scheme}://{at}"

    def _count(self, error: SqsError, scope: Scope) -> None:
        if not error.kind.is_of_sender:
            self._figures.failed += 1
            return
        self._figures.refused += 1
        if error.kind in _OF_SIGNATURES:
            self._figures.refused_signatures += 1
            self._report(error, scope)

    def _report(self, error: SqsError, scope: Scope) -> None:
        client = (scope.get("client") or ("somebody",))[0]
        assert self._repetition is not None  # no requests arrive before the start
        suppressed = self._repetition.count_suppressed(client)
        if suppressed is None:
            return
        more = f" ({suppressed} more since the last line)" if suppressed else ""
        _log.warning(
            "sqs: refused a request of %s: %s%s",
            client,
            error,
            more,
            extra={"event": LogEvent.SQS_SIGNATURE_REFUSED, "code": error.kind.code},
        )


class _GoneError(Exception):
    """The client has disconnected and no longer waits for the response."""


_OF_SIGNATURES: Final = frozenset(
    {
        SqsErrorKind.UNSIGNED,
        SqsErrorKind.INCOMPLETE_SIGNATURE,
        SqsErrorKind.UNKNOWN_ACCESS_KEY,
        SqsErrorKind.WRONG_SIGNATURE,
    }
)


async def _is_gone_before(answering: asyncio.Task[Answer], receive: Receive) -> bool:
    """Wait for a response; return True if the client disconnects first."""
    # Most responses are ready at once and need no second task.
    await asyncio.sleep(0)
    if answering.done():
        return False
    leaving = asyncio.ensure_future(receive())
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return leaving.done()
    finally:
        leaving.cancel()


def _headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers by name; headers with equal names are joined, as for signatures."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _url_of(scope: Scope, headers: Mapping[str, str]) -> str:
    path = scope["raw_path"].decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    return f"{scope['scheme']}://{headers.get('host', '')}{path}{'?' if query else ''}{query}"


def _check_host(headers: Mapping[str, str], config: EndpointConfig) -> None:
    """Refuse foreign host names: another site could resolve its own name to this machine."""
    given = headers.get("host", "")
    known = {"localhost", config.address.host, _host_in(config.advertise or "")}
    host = _host_in(given)
    if host in known or _is_ip_address(host):
        return
    message = (
        f"without sqs.credentials clients must call this address localhost, not {shown(given)}"
    )
    raise SqsError(SqsErrorKind.MISDIRECTED, message)


def _host_in(address: str) -> str:
    with suppress(ValueError):
        return urlsplit(address if "://" in address else f"//{address}").hostname or ""
    return ""


def _is_ip_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _too_large() -> SqsError:
    message = f"the body is larger than {MOST_BODY_BYTES} bytes"
    return SqsError(SqsErrorKind.TOO_LARGE, message)


def _encoded(answer: Answer) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
