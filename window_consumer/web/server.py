"""A server thread: it listens on an address, and serves an application inside a context."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Protocol, Self

import uvicorn
from attrs import frozen
from starlette.types import ASGIApp

from window_consumer.config.sections.listening import ListenAddress, TlsConfig, certificate_problems
from window_consumer.model.errors import UsageError
from window_consumer.web.protocol import DEADLINE_S, IdleTimeoutProtocol

_LONGEST_HEAD: Final = 16 * 1024

_END_S: Final = 5.0


class WebApplication(Protocol):
    """The application of a server. Its methods run on the server's event loop."""

    def application(self) -> ASGIApp:
        """Return the ASGI application; called once, before the server starts."""

    def start(self) -> None:
        """Start its own tasks; the event loop is running."""

    def close(self) -> None:
        """Disconnect everybody."""


@frozen(kw_only=True)
class ServerLimits:
    """Limits for clients."""

    connections: int
    """Above it, requests are answered with 503."""
    deadline_s: float = DEADLINE_S
    """The time for a request to arrive, and for a client to continue reading."""
    keep_alive_s: int = 5
    """How long a connection may wait for its next request."""


class WebServer:
    """A thread that serves an application inside the context. Slow and idle clients are cut off."""

    def __init__(
        self,
        routes: WebApplication,
        listening: socket.socket,
        thread: str,
        limits: ServerLimits,
        tls: Mapping[str, str] = MappingProxyType({}),
    ):
        """``thread`` is its name, which begins with ``wc-``; ``tls`` comes from ``tls_options``."""
        config = uvicorn.Config(
            routes.application(),
            http=partial(IdleTimeoutProtocol, deadline_s=limits.deadline_s),  # type: ignore[arg-type] # it is only called
            interface="asgi3",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=limits.keep_alive_s,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
            **tls,  # type: ignore[arg-type] # texts, for keys that take texts
        )
        self._server = _Server(config, routes)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name=thread, daemon=True
        )

    def __enter__(self) -> Self:
        logging.getLogger("uvicorn.error").addFilter(_not_of_ours)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join(_END_S)


class _Server(uvicorn.Server):
    """Starts and stops the tasks of the application together with the server."""

    def __init__(self, config: uvicorn.Config, routes: WebApplication):
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
        for each in self.server_state.connections:
            each.transport.abort()  # with TLS, a client that does not read would keep it open
        await asyncio.sleep(0)


def _not_of_ours(record: logging.LogRecord) -> bool:
    # uvicorn's lines about malformed requests and its own start are useless on our threads.
    return not (record.threadName or "").startswith("wc-")


def listen_on(address: ListenAddress, key: str) -> socket.socket:
    """Return a socket that listens on the address of ``key``.

    Raises UsageError if it is not available.
    """
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        # [::] means all addresses of this machine, including IPv4, as for probes.
        both = address.host == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server(address, family=family, backlog=512, dualstack_ipv6=both)
    except OSError as error:
        # socket appends the names of our own classes to the reason.
        why = (error.strerror or str(error)).partition(" (while attempting")[0]
        raise UsageError(
            f"{key}: cannot listen on {address}: {why}; choose another address, or"
            " port 0 for any free one"
        ) from error
    # asyncio does it only for sockets that name their protocol. Without it the second part of an
    # answer waits 40 ms for the client's delayed acknowledgement of the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def tls_options(tls: TlsConfig, directory: Path, section: str) -> dict[str, str]:
    """Return the options of ``WebServer`` for a certificate and its key, after checking them.

    Relative names start at ``directory``; ``section`` has the key ``tls``. Raises UsageError.
    """
    if tls.certificate is None or tls.key is None:
        return {}
    for key, why in certificate_problems(tls, directory):  # they may have changed since the check
        raise UsageError(f"{'.'.join(filter(None, (section, 'tls', key)))}: {why}")
    return {
        "ssl_certfile": str(directory / tls.certificate),
        "ssl_keyfile": str(directory / tls.key),
        "ssl_keyfile_password": "",
    }
