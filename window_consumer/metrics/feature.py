"""Probes and metrics as a feature: the server for probes and scrapers, and its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final, Protocol

from attrs import field, frozen

from window_consumer.config import Config
from window_consumer.config.options import Section, about
from window_consumer.config.sections.listening import ListenAddress, ListenSection, address_kind
from window_consumer.metrics.catalog import METRICS
from window_consumer.metrics.health import Health
from window_consumer.metrics.http_server import HttpServer, Routes
from window_consumer.metrics.replica_health import ReplicasHealth
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AppStart, Feature, Pages
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.replica import HttpAnswer, ReplicaSockets

KEY: Final = "health.listen"

_log = own_logger()

Where = tuple[str, int] | Path | None
"""A host and a port, a Unix socket, or nowhere."""


@frozen(kw_only=True)
class HealthConfig(ListenSection):
    """Answers for probes and scrapers."""

    listen: str | None = field(
        default=None,
        metadata=about(
            "The address of /livez, /readyz and /metrics, over plain HTTP and without "
            "authentication; they reveal nothing about records. Port 0 means any free port, which "
            "the log reports.",
            kind=address_kind(),
            default="none: nothing listens",
        ),
    )


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


class MetricsFeature(Feature):
    """Probes and metrics."""

    name = "metrics"
    section = Section("health", HealthConfig, "Where probes and scrapers get answers.")
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"metrics": "window_consumer.metrics.cli:metrics_command"}
    )

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[None]:
        """Answer for the workers of this process.

        A replica answers its supervisor. Raises UsageError if the address is not available.
        """
        health = Health(start.workers, start.failures, (*METRICS, *start.metrics))
        replica = start.replica
        own = start.plan.config.section(HealthConfig).address
        with answering(health, own if replica is None else replica.socket):
            yield

    def asks_replicas(self, plan: AppPlan) -> bool:
        """Return whether there is an address to answer at for the replicas."""
        return plan.config.section(HealthConfig).address is not None

    def readiness_address(self, config: Config) -> ListenAddress | None:
        """Return the address of ``health.listen``."""
        return config.section(HealthConfig).address

    @contextmanager
    def beside_replicas(
        self,
        plan: AppPlan,
        sockets: Mapping[str, ReplicaSockets],
        pages: Callable[[], Mapping[str, Pages]],
    ) -> Iterator[Callable[[str], None]]:
        """Answer for all replicas. Raises UsageError if the address is not available."""
        del pages
        health = ReplicasHealth({number: each.health for number, each in sockets.items()})
        with answering(health, plan.config.section(HealthConfig).address):
            yield health.ended


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
