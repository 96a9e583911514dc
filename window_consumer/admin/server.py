"""The admin address: a server thread that starts before the workers and stops after them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from window_consumer.admin.board import Board
from window_consumer.admin.config import AdminConfig
from window_consumer.admin.feed import MOST_PAGES
from window_consumer.admin.guard import Gate
from window_consumer.admin.routes import AdminRoutes
from window_consumer.config.sections.listening import ListenAddress
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.feature import Pages
from window_consumer.runtime.log import own_logger
from window_consumer.web.protocol import DEADLINE_S
from window_consumer.web.server import ServerLimits, WebServer, listen_on, tls_options

KEY: Final = "admin.listen"
THREAD: Final = "wc-web"

MOST_CONNECTIONS: Final = 600
"""Each takes tens of kilobytes. A page uses one, and a second one during a request."""

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

_log = own_logger()


@contextmanager
def serving(
    board: Board | None,
    admin: AdminConfig,
    directory: Path,
    pages: Mapping[str, Pages] = MappingProxyType({}),
    *,
    most_pages: int = MOST_PAGES,
    deadline_s: float = DEADLINE_S,
) -> Iterator[int]:
    """Serve the configured address inside the context; yield the port.

    Without a ``board`` no windows are shown. Relative file names start at ``directory``. ``pages``
    are those of features. Raises UsageError if the address or the certificate is unusable.
    """
    address = admin.address
    assert address is not None  # checked by the caller
    tls = tls_options(admin.tls, directory, "admin")
    with listen_on(address, KEY) as listening:
        port = listening.getsockname()[1]
        gate = _gate_of(admin, address, port)
        routes = AdminRoutes(board, gate, pages, values=admin.values, most_pages=most_pages)
        limits = ServerLimits(connections=MOST_CONNECTIONS, deadline_s=deadline_s)
        with WebServer(routes, listening, THREAD, limits, tls):
            url = f"{'https' if tls else 'http'}://{ListenAddress(address.host, port)}/"
            _log.info(
                "admin: %s for the %s",
                url,
                "console" if board is None else "live window",
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
        with WebServer(routes, listening, THREAD, ServerLimits(connections=MOST_CONNECTIONS)):
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
