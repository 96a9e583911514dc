"""The admin address: a server thread that starts before the workers and stops after them.

Clients that are slow or silent are disconnected.
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
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from window_consumer.admin.answers import Pages
from window_consumer.admin.board import Board
from window_consumer.admin.feed import MOST_PAGES
from window_consumer.admin.guard import Gate
from window_consumer.admin.site import Site
from window_consumer.config.sections.listening import (
    AdminConfig,
    ListenAddress,
    certificate_problems,
)
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

DEADLINE_S: Final = 10.0
"""For a request to come, and for whoever is sent something to read on."""


class IdleTimeoutProtocol(H11Protocol):
    """One connection. It is cut when for so long nothing was asked, or nothing was read.

    What is held for one that does not read is bounded all the same: by uvicorn, which writes no
    further than 64 KiB beyond what the system takes.
    """

    def __init__(self, *given: Any, deadline_s: float = DEADLINE_S, **named: Any):
        super().__init__(*given, **named)
        self._deadline_s = deadline_s
        self._look: asyncio.TimerHandle | None = None
        self._seen: object = None
        """The request of the last look."""
        self._was_stuck = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Begin to look now and then."""
        super().connection_made(transport)
        self._look = self.loop.call_later(self._deadline_s, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn begins with None
        is_stuck = self.flow.write_paused
        # Idle, or with a request of which the rest does not come.
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
"""Each costs a few tens of kilobytes. A page has one, and another one while it asks something."""

_LONGEST_HEAD: Final = 16 * 1024

_END_S: Final = 5.0

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

_log = own_logger()


@contextmanager
def serving(
    board: Board,
    admin: AdminConfig,
    directory: Path,
    trace: Pages | None = None,
    *,
    most_pages: int = MOST_PAGES,
    deadline_s: float = DEADLINE_S,
) -> Iterator[int]:
    """Answer at the configured address as long as the block lasts; gives its port.

    Relative names of files begin at ``directory``. ``trace`` are the pages of journeys.
    Raises UsageError where the address or the certificate cannot be used.
    """
    address = admin.address
    assert address is not None  # the caller has looked
    tls = _tls_of(admin, directory)
    with _listen_on(address) as listening:
        port = listening.getsockname()[1]
        gate = _gate_of(admin, address, port)
        site = Site(board, gate, trace, values=admin.values, most_pages=most_pages)
        with _running(site, _config_of(site, tls, deadline_s), listening):
            scheme = "https" if tls else "http"
            host = f"[{address.host}]" if ":" in address.host else address.host
            _log.info(
                "admin: %s://%s:%d/ for the live window",
                scheme,
                host,
                port,
                extra={"event": LogEvent.ADMIN_STARTED},
            )
            yield port


@contextmanager
def serving_on(board: Board, path: Path, *, values: bool = False) -> Iterator[None]:
    """Answer at a Unix socket, which only whoever keeps this copy gets to, as long as it lasts."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()
        site = Site(board, Gate(), values=values)
        with _running(site, _config_of(site, {}), listening):
            yield


def _gate_of(admin: AdminConfig, address: ListenAddress, port: int) -> Gate:
    hosts: frozenset[str] | None = _LOOPBACK | {
        each.strip("[]").removesuffix(".").casefold() for each in (address.host, *admin.hosts)
    }
    any_ip_address = False
    if not (admin.hosts or address.is_loopback):
        # No other site's page has the token, or a session under its own name. Without a token a
        # foreign name that leads here would be enough to read and to pause.
        if admin.token is not None:
            hosts = None
        else:
            hosts = (hosts or frozenset()) | {socket.gethostname().casefold()}
            any_ip_address = True
    return Gate(admin.token, hosts, any_ip_address, port, admin.tls.certificate is not None)


def _config_of(
    site: Site, tls: Mapping[str, str], deadline_s: float = DEADLINE_S
) -> uvicorn.Config:
    return uvicorn.Config(
        site.application(),
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
    """Return what uvicorn needs of certificate and key, which have been tried."""
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
def _running(site: Site, config: uvicorn.Config, listening: socket.socket) -> Iterator[None]:
    server = _AdminServer(config, site)
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
    """Begins and ends what the site sends by itself together with the server."""

    def __init__(self, config: uvicorn.Config, site: Site):
        super().__init__(config)
        self._site = site

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self._site.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let go of everybody."""
        self._site.close()
        await super().shutdown(sockets)


def _not_of_ours(record: logging.LogRecord) -> bool:
    # What uvicorn says of malformed requests and of its own start is of no use to anybody here.
    return record.threadName != THREAD


def _listen_on(address: ListenAddress) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        # [::] stands for all of this machine, as it does for probes: those of IPv4, too.
        both = address.host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=512, dualstack_ipv6=both)
    except OSError as error:
        host = f"[{address.host}]" if ":" in address.host else address.host
        # What socket adds to the reason names our own classes.
        why = (error.strerror or str(error)).partition(" (while attempting")[0]
        raise UsageError(
            f"{KEY}: cannot listen on {host}:{address.port}: {why}; choose another address, or"
            " port 0 for any free one"
        ) from error
