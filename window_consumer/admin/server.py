"""The admin address: a server thread that starts before the workers and stops after them.

Slow and idle clients are disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from window_consumer.admin.board import Board
from window_consumer.admin.config import AdminConfig, certificate_problems
from window_consumer.admin.feed import MOST_PAGES
from window_consumer.admin.guard import Gate
from window_consumer.admin.routes import AdminRoutes
from window_consumer.config.sections.listening import ListenAddress
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.feature import Pages
from window_consumer.runtime.log import own_logger

DEADLINE_S: Final = 10.0
"""The time for a request to arrive, and for a client to continue reading."""


class IdleTimeoutProtocol(H11Protocol):
    """A connection that closes when nothing is requested, or nothing is read, for the deadline.

    A client that does not read cannot exhaust memory: uvicorn buffers at most 64 KiB beyond the
    system's own buffers.
    """

    def __init__(self, *given: Any, deadline_s: float = DEADLINE_S, **named: Any):
        super().__init__(*given, **named)
        self._deadline_s = deadline_s
        self._look: asyncio.TimerHandle | None = None
        self._seen: object = None
        """The request at the last check."""
        self._was_stuck = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Start the periodic check."""
        super().connection_made(transport)
        self._look = self.loop.call_later(self._deadline_s, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the check."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn starts with None
        is_stuck = self.flow.write_paused
        # Idle, or with a request whose body does not arrive.
        was_idle = cycle is self._seen and (
            cycle is None or cycle.response_complete or cycle.more_body
        )
        if self.transport.is_closing() or was_idle or (is_stuck and self._was_stuck):
            self.transport.abort()
            return
        self._seen, self._was_stuck = cycle, is_stuck
        self._look = self.loop.call_later(self._deadline_s, self._check_idle)


KEY: Final = "admin.listen"
THREAD: Final = "wc-web"

MOST_CONNECTIONS: Final = 600
"""Each takes tens of kilobytes. A page uses one, and a second one during a request."""

_LONGEST_HEAD: Final = 16 * 1024

_END_S: Final = 5.0

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

_log = own_logger()


@contextmanager
def serving(
    board: Board,
    admin: AdminConfig,
    directory: Path,
    pages: Mapping[str, Pages] = MappingProxyType({}),
    *,
    most_pages: int = MOST_PAGES,
    deadline_s: float = DEADLINE_S,
) -> Iterator[int]:
    """Serve the configured address inside the context; yield the port.

    Relative file names start at ``directory``. ``pages`` are those of features. Raises
    UsageError if the address or the certificate is unusable.
    """
    address = admin.address
    assert address is not None  # checked by the caller
    tls = _tls_of(admin, directory)
    with _listen_on(address) as listening:
        port = listening.getsockname()[1]
        gate = _gate_of(admin, address, port)
        routes = AdminRoutes(board, gate, pages, values=admin.values, most_pages=most_pages)
        with _running(routes, _config_of(routes, tls, deadline_s), listening):
            scheme = "https" if tls else "http"
            host = f"[{address.host}]" if ":" in address.host else address.host
            url = f"{scheme}://{host}:{port}/"
            _log.info(
                "admin: %s for the live window",
                url,
                extra={"event": LogEvent.ADMIN_STARTED, "url": url},
            )
            yield port


@contextmanager
def serving_on(board: Board, path: Path, *, values: bool = False) -> Iterator[None]:
    """Serve a Unix socket inside the context; only the parent of this replica can reach it."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        routes = AdminRoutes(board, Gate(), values=values)
        with _running(routes, _config_of(routes, {}), listening):
            yield


def _gate_of(admin: AdminConfig, address: ListenAddress, port: int) -> Gate:
    hosts: frozenset[str] | None = _LOOPBACK | {
        each.strip("[]").removesuffix(".").casefold() for each in (address.host, *admin.hosts)
    }
    any_ip_address = False
    if not (admin.hosts or address.is_loopback):
        # No other site's page has the token, or a session under its own name. Without a token, a
        # foreign name that resolves to this address would suffice to read and to pause.
        if admin.access:
            hosts = None
        else:
            hosts = (hosts or frozenset()) | {socket.gethostname().casefold()}
            any_ip_address = True
    return Gate(admin.access, hosts, any_ip_address, port, admin.tls.certificate is not None)


def _config_of(
    routes: AdminRoutes, tls: Mapping[str, str], deadline_s: float = DEADLINE_S
) -> uvicorn.Config:
    return uvicorn.Config(
        routes.application(),
        http=partial(IdleTimeoutProtocol, deadline_s=deadline_s),  # type: ignore[arg-type] # it is only called
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
        h11_max_incomplete_event_size=_LONGEST_HEAD,
        **tls,  # type: ignore[arg-type] # texts, for keys that take texts
    )


def _tls_of(admin: AdminConfig, directory: Path) -> dict[str, str]:
    """Return uvicorn's options for certificate and key, after checking them."""
    if admin.tls.certificate is None or admin.tls.key is None:
        return {}
    for key, why in certificate_problems(admin, directory):  # they may have changed since the check
        raise UsageError(f"{'.'.join(filter(None, ('admin.tls', key)))}: {why}")
    return {
        "ssl_certfile": str(directory / admin.tls.certificate),
        "ssl_keyfile": str(directory / admin.tls.key),
        "ssl_keyfile_password": "",
    }


@contextmanager
def _running(
    routes: AdminRoutes, config: uvicorn.Config, listening: socket.socket
) -> Iterator[None]:
    server = _AdminServer(config, routes)
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, name=THREAD, daemon=True
    )
    said = logging.getLogger("uvicorn.error")
    said.addFilter(_not_of_ours)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(_END_S)


class _AdminServer(uvicorn.Server):
    """Starts and stops the tasks of the routes together with the server."""

    def __init__(self, config: uvicorn.Config, routes: AdminRoutes):
        super().__init__(config)
        self._routes = routes

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._routes.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Disconnect everybody."""
        self._routes.close()
        await super().shutdown(sockets)


def _not_of_ours(record: logging.LogRecord) -> bool:
    # uvicorn's lines about malformed requests and its own start are useless here.
    return record.threadName != THREAD


def _listen_on(address: ListenAddress) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        # [::] means all addresses of this machine, as for probes: IPv4 ones, too.
        both = address.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=512, dualstack_ipv6=both)
    except OSError as error:
        host = f"[{address.host}]" if ":" in address.host else address.host
        # socket appends the names of our own classes to the reason.
        why = (error.strerror or str(error)).partition(" (while attempting")[0]
        raise UsageError(
            f"{KEY}: cannot listen on {host}:{address.port}: {why}; choose another address, or"
            " port 0 for any free one"
        ) from error
