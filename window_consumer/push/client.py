"""Requests over aiohttp, which only this module knows: connections of one worker to one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from io import BytesIO
from typing import Final
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
from window_consumer.push.request_headers import Pairs

_KEEP_ALIVE_S: Final = 4.0
"""Less than the 5 s after which Node.js closes idle connections: no request meets such an end."""

_SENT_AS_ONE: Final = 1024**2
"""A longer body is sent in pieces, as aiohttp recommends."""


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
        """The URL for messages, without its query, which may hold secrets."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sessions: AsyncGenerator[aiohttp.ClientSession, None]
        self._session: aiohttp.ClientSession

    async def post(self, headers: Pairs, body: bytes) -> Answer:
        """Return the answer to a request; raises a PushFailedError if there is none."""
        if self._loop is not asyncio.get_running_loop():
            await self._open()
        try:
            async with self._session.post(
                self._url,
                data=body if len(body) <= _SENT_AS_ONE else BytesIO(body),
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
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
        self._sessions = _session(self._connections, self._timeout_s)
        self._session = await anext(self._sessions)
        self._loop = asyncio.get_running_loop()


async def _session(
    connections: int, timeout_s: float
) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Yield a session; a loop that ends closes its generators, and so its connections."""
    connector = aiohttp.TCPConnector(
        limit=connections, keepalive_timeout=_KEEP_ALIVE_S, resolver=aiohttp.ThreadedResolver()
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "window-consumer", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        auto_decompress=False,
    )
    async with session:
        yield session


async def _read(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """Return the body, or its beginning and False; then the connection is not used again."""
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
    """Return what an error says, without parts that differ from call to call."""
    return str(error).partition(" [")[0] or type(error).__name__
