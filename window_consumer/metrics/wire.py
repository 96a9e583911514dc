"""Health of a process or of all replicas: the server for probes and scrapers, and its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Protocol

from window_consumer.metrics.health import Health
from window_consumer.metrics.http_server import HttpServer, Routes
from window_consumer.metrics.replica_health import ReplicasHealth
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.replica import HttpAnswer, ReplicaIdentity

KEY: Final = "health.listen"

_log = own_logger()

Where = tuple[str, int] | Path | None
"""A host and a port, a Unix socket, or nowhere."""


class Answers(Protocol):
    """Answers of a health server. Any thread may ask."""

    def live(self) -> HttpAnswer:
        """Answer ``/livez``."""

    def ready(self) -> HttpAnswer:
        """Answer ``/readyz``."""

    def metrics(self) -> HttpAnswer:
        """Answer ``/metrics``."""

    def run_periodic(self) -> None:
        """Do periodic work, without a request."""


def routes_of(health: Answers) -> Routes:
    """Return the function that answers at each path."""
    return {"/livez": health.live, "/readyz": health.ready, "/metrics": health.metrics}


def health_of(plan: AppPlan, copy: ReplicaIdentity | None, beside: ExitStack) -> Health:
    """Answer for the workers of this process until ``beside`` is left.

    A replica answers its supervisor. Raises UsageError if the address is not available.
    """
    health = Health() if copy is None else Health({"process": copy.number})
    where = plan.config.health.address if copy is None else copy.socket
    beside.enter_context(answering(health, where))
    return health


@contextmanager
def health_of_copies(plan: AppPlan, sockets: Mapping[str, Path]) -> Iterator[ReplicasHealth]:
    """Answer for all replicas during the block; ``sockets`` holds theirs, by number.

    Raises UsageError if the address is not available.
    """
    health = ReplicasHealth(sockets)
    with answering(health, plan.config.health.address):
        yield health


@contextmanager
def answering(health: Answers, where: Where) -> Iterator[None]:
    """Answer during the block.

    Raises UsageError if the address is not available.
    """
    if where is None:
        yield
        return
    routes = routes_of(health)
    if isinstance(where, Path):
        server = HttpServer.on_path(where, routes, health.run_periodic)
    else:
        server = HttpServer.on_port(*where, routes, health.run_periodic, key=KEY)
        _log.info(
            "health: %s for /livez, /readyz and /metrics",
            server.where,
            extra={"event": LogEvent.HEALTH_STARTED, "url": server.where},
        )
    try:
        yield
    finally:
        server.close()
