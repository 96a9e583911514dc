"""An HTTP service in a process of its own, as fast as asyncio allows.

``push_service BEGINS LASTS`` prints its port. From BEGINS seconds after the first request on it
answers 404, for LASTS seconds. When its input ends, it prints its counts.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from attrs import define, field, frozen

from benchmarks.children import CHECKOUT
from window_consumer.runtime.pools.event_loop import make_loop

_TAKEN: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_REFUSED: Final = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ID: Final = re.compile(rb"\r\nidempotency-key: *([^\r]+)", re.IGNORECASE)
_END: Final = b"\r\n\r\n"


@define
class Seen:
    """What the service has seen, and how it answers now."""

    begins_s: float
    lasts_s: float
    first: float = 0.0
    taken: int = 0
    refused: int = 0
    ids: set[bytes] = field(factory=set)
    """Of the accepted requests; unused without an outage."""

    def answer(self, head: bytes) -> bytes:
        """Return the answer to a request."""
        if not self.lasts_s:
            self.taken += 1
            return _TAKEN
        now = time.monotonic()
        self.first = self.first or now
        if self.begins_s <= now - self.first < self.begins_s + self.lasts_s:
            self.refused += 1
            return _REFUSED
        self.taken += 1
        found = _ID.search(head)
        if found:
            self.ids.add(found[1])
        return _TAKEN


class Connection(asyncio.Protocol):
    """Answers one request after another."""

    def __init__(self, seen: Seen):
        self._seen = seen
        self._left = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._left += data
        while (end := self._left.find(_END)) >= 0:
            head = self._left[:end]
            found = _LENGTH.search(head)
            size = end + len(_END) + (int(found[1]) if found else 0)
            if len(self._left) < size:
                return
            self._left = self._left[size:]
            self._transport.write(self._seen.answer(head))


async def _serve(seen: Seen) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(seen), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@frozen
class Service:
    """The service, as its user sees it."""

    url: str
    seen: dict[str, int]
    """What it has seen; filled at its end."""


@contextmanager
def started(begins_s: float = 0.0, lasts_s: float = 0.0) -> Iterator[Service]:
    """Run a service in a process; an outage begins after ``begins_s`` and lasts ``lasts_s``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.push_service", str(begins_s), str(lasts_s)],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    service = Service(f"http://127.0.0.1:{process.stdout.readline().strip()}/events", {})
    try:
        yield service
    finally:
        found, _ = process.communicate("")
        service.seen.update(json.loads(found))


def main(begins_s: float, lasts_s: float) -> None:
    """Serve until the input ends."""
    seen = Seen(begins_s, lasts_s)
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_serve(seen))
    print(json.dumps({"taken": seen.taken, "refused": seen.refused, "ids": len(seen.ids)}))


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
