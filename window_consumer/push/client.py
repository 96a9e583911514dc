"""Requests over aiohttp, which only this module uses: one worker's connections to one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from io import BytesIO
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp

from window_consumer.push.answer import (
    MOST_BYTES,
    Answer,
    NoAnswerInTimeError,
    NoConnectionError,
    NotHttpError,
)
from window_consumer.push.config import HttpConfig
from window_consumer.push.request import Request

_KEEP_ALIVE_S: Final = 4.0
"""Less than the 5 s after which Node.js closes idle connections, so that no request meets the
close."""

_SENT_AS_ONE: Final = 1024**2
"""A longer body is sent in pieces, as aiohttp recommends."""

_OWN_HEADERS: Final = {
    "Accept": "*/*",
    "User-Agent": "window-consumer",
    "Accept-Encoding": "identity",
}
"""Headers of each request, unless the configuration has others."""

_SENT_AT_ONCE: Final = 16 * 1024
"""A longer body waits until the connection accepts it, which takes a separate task before Python
3.12. asyncio buffers 64 KiB for a connection before it pauses writing."""


class HttpClient:
    """Posts requests to one URL, on as many connections as calls run. Owner: one event loop.

    The connections are closed when the loop ends.
    """

    def __init__(self, config: HttpConfig, connections: int):
        assert config.url is not None
        self._url = config.url
        self._timeout_s = config.timeout
        self._connections = connections
        self._proxy = proxy_of(config)
        parts = urlsplit(config.url)
        self.where = f"{parts.scheme}://{parts.netloc}{parts.path}"
        """The URL to show in messages, without its query, which may contain secrets."""
        given = {name.lower() for name in config.headers}
        self._own = {name: _OWN_HEADERS[name] for name in _OWN_HEADERS if name.lower() not in given}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: AsyncGenerator[aiohttp.ClientSession, None]
        self._session: aiohttp.ClientSession

    async def post(self, request: Request) -> Answer:
        """Return the response to a request; raise a PushFailedError if there is none."""
        # get_running_loop is a system call in Python 3.11. Only a closed loop has a successor.
        if self._loop is None or self._loop.is_closed():
            await self._open()
        try:
            async with self._session.post(
                self._url, data=request, allow_redirects=False, proxy=self._proxy
            ) as response:
                body, is_whole = await _read(response)
                return Answer(response.status, response.headers, body, is_whole)
        except TimeoutError:
            what = f"{self.where} did not answer within {self._timeout_s:g} s"
            raise NoAnswerInTimeError(what) from None
        except aiohttp.ClientResponseError as error:
            why = error.message.partition("\n")[0].rstrip(":")
            raise NotHttpError(f"{self.where} did not answer in HTTP: {why}") from None
        # A name that no DNS can hold is a UnicodeError.
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise NoConnectionError(f"no connection to {self.where}: {_text_of(error)}") from None

    async def _open(self) -> None:
        self._sessions = _session(self._connections, self._timeout_s, self._own)
        self._session = await anext(self._sessions)
        self._loop = asyncio.get_running_loop()


class _Joining(asyncio.WriteTransport):
    """A transport that sends a body with its headers: each system call costs some 10 us."""

    def __init__(self, transport: asyncio.WriteTransport, content: bytes):
        self._transport = transport
        self._content = content

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: Any) -> None:
        """Send the headers and the body."""
        self._transport.write(data + self._content)


class _Posted(aiohttp.ClientRequest):
    """A Request to send: the ``data`` of ``session.post``.

    aiohttp copies headers three times, name by name, and starts a task for each body. That was a
    quarter of a request's time.
    """

    _at_once = b""

    def update_auto_headers(self, skip_auto_headers: Any) -> None:
        """Add nothing: the session has them."""

    def update_body_from_data(self, body: Request, *_: Any) -> None:
        """Take the headers and the body."""
        self.headers.extend(body.headers)
        content = body.body
        if len(content) <= _SENT_AT_ONCE:
            self.headers["Content-Length"] = str(len(content))
            self._at_once = content
        else:
            super().update_body_from_data(
                content if len(content) <= _SENT_AS_ONE else BytesIO(content)
            )

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send the headers and, with them, a short body."""
        content = self._at_once
        protocol: Any = conn.protocol
        if not content:
            return await super().send(conn)
        if protocol.writing_paused:  # then aiohttp sends the headers later
            super().update_body_from_data(content)
            return await super().send(conn)
        transport = protocol.transport
        protocol.transport = _Joining(transport, content)
        try:
            return await super().send(conn)  # returns at once, because it has no body
        finally:
            protocol.transport = transport


async def _session(
    connections: int, timeout_s: float, headers: dict[str, str]
) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Yield a session; a loop that ends closes its generators and thereby the connections."""
    connector = aiohttp.TCPConnector(
        limit=connections, keepalive_timeout=_KEEP_ALIVE_S, resolver=aiohttp.ThreadedResolver()
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
        request_class=_Posted,
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        auto_decompress=False,
    )
    async with session:
        yield session


async def _read(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """Return the body and True, or its beginning and False; the connection is then not reused."""
    length = response.content_length
    if length is not None and length <= MOST_BYTES:
        return await response.read(), True
    body = bytearray()
    while piece := await response.content.readany():
        body += piece
        if len(body) > MOST_BYTES:
            response.close()
            return bytes(body[:MOST_BYTES]), False
    return bytes(body), True


def proxy_of(config: HttpConfig) -> str | None:
    """Return the URL of the proxy that requests take."""
    if isinstance(config.proxy, str) or not config.proxy:
        return config.proxy or None
    parts = urlsplit(config.url or "")
    if proxy_bypass(parts.hostname or ""):
        return None
    return getproxies_environment().get(parts.scheme)


def _text_of(error: BaseException) -> str:
    """Return the text of an error without parts that differ from call to call."""
    return str(error).partition(" [")[0] or type(error).__name__
