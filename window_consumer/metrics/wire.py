"""The server for probes and scrapers: where it listens, and who answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from window_consumer.metrics.health import Answer
from window_consumer.metrics.http_server import (
    HttpServer,
    Routes,
)
from window_consumer.runtime.log import own_logger

KEY: Final = "health.listen"

_log = own_logger()

Where = tuple[str, int] | Path | None
"""A host and a port, a Unix socket, or nowhere."""


class Answers(Protocol):
    """Who answers. Any thread may ask."""

    def live(self) -> Answer:
        """Answer ``/livez``."""

    def ready(self) -> Answer:
        """Answer ``/readyz``."""

    def metrics(self) -> Answer:
        """Answer ``/metrics``."""

    def look(self) -> None:
        """Do what has to be done now and then, with nobody asking."""


def routes_of(health: Answers) -> Routes:
    """Return who answers at which path."""
    return {"/livez": health.live, "/readyz": health.ready, "/metrics": health.metrics}


@contextmanager
def answering(health: Answers, where: Where) -> Iterator[None]:
    """Answer as long as the block lasts.

    Raises UsageError where the address cannot be had.
    """
    if where is None:
        yield
        return
    routes = routes_of(health)
    if isinstance(where, Path):
        server = HttpServer.on_path(where, routes, health.look)
    else:
        server = HttpServer.on_port(*where, routes, health.look, key=KEY)
        _log.info("health: %s for /livez, /readyz and /metrics", server.where)
    try:
        yield
    finally:
        server.close()
