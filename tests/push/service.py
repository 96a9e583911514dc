"""An HTTP service that records are posted to, and sockets that answer anything."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Self

from aiohttp import web
from attrs import define, field, frozen

from tests.commands import DEADLINE_S

MOST_BODY = 32 * 1024**2


@frozen
class Posted:
    """A request that has come."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: tuple[str, int]
    """The client's end."""

    def header(self, name: str) -> str | None:
        """Return the last value of a header."""
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        return found[-1] if found else None


Answering = Callable[[Posted], "Answered | Awaitable[Answered]"]


@frozen
class Answered:
    """The service's answer."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(factory=dict)
    chunks: int = 1
    """How many times the body is sent; chunked if more than once."""


@define
class Service:
    """Answers each request with ``answer``. Any thread may read ``posted``."""

    answer: Answering = lambda _: Answered()
    tls: ssl.SSLContext | None = None
    posted: list[Posted] = field(factory=list)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(factory=asyncio.new_event_loop)
    _news: threading.Condition = field(factory=threading.Condition)
    _ready: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    @property
    def url(self) -> str:
        scheme = "http" if self.tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/events"

    def wait_for(self, requests: int) -> None:
        """Wait until this many requests have come."""
        with self._news:
            came = self._news.wait_for(lambda: len(self.posted) >= requests, DEADLINE_S)
        assert came, f"{len(self.posted)} of {requests} requests"

    @property
    def bodies(self) -> list[str]:
        return [each.body.decode() for each in self.posted]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        application = web.Application(client_max_size=MOST_BODY)
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        self._loop.run_until_complete(self._start(runner))
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.run_until_complete(_end_all())
        self._loop.close()

    async def _start(self, runner: web.AppRunner) -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=self.tls)
        await site.start()
        self.port = runner.addresses[0][1]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peername")
        headers = list(request.headers.items())
        posted = Posted(request.path_qs, headers, await request.read(), peer[:2])
        with self._news:
            self.posted.append(posted)
            self._news.notify_all()
        found = self.answer(posted)
        answered = found if isinstance(found, Answered) else await found
        if answered.chunks == 1:
            return web.Response(
                status=answered.status, body=answered.body, headers=answered.headers
            )
        response = web.StreamResponse(status=answered.status, headers=answered.headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        for _ in range(answered.chunks):
            await response.write(answered.body)
        await response.write_eof()
        return response


async def _end_all() -> None:
    """End answers that are never read to the end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def statuses(*given: int) -> Answering:
    """Answer with one status after another, and with the last one from then on."""
    left = list(given)
    return lambda _: Answered(left.pop(0) if len(left) > 1 else left[0])


@contextmanager
def socket_that_says(answer: bytes, heard: list[bytes] | None = None) -> Iterator[str]:
    """Yield the URL of a server that answers each connection with these bytes and closes it.

    It appends received bytes to ``heard`` at once.
    """
    heard = [] if heard is None else heard
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/events"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def closed_port() -> int:
    """Return a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port
