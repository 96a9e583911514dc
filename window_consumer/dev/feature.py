"""``dev`` as a feature: its command, and its parts in the application that it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from window_consumer.admin.config import AdminConfig
from window_consumer.config import Config
from window_consumer.dev.process import READY
from window_consumer.kafka.cluster.topics import BROKERS_REPLICATION, NewCopyTopic
from window_consumer.plan.clients import Clients
from window_consumer.plan.feature import AppStart, Feature, PageContext
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.runtime.running import Running

if TYPE_CHECKING:
    from window_consumer.dev.page import DevPages

_PARTITIONS: Final = 4
"""As many as the embedded broker gives a topic."""


class RunningDev(RunningFeature):
    """Reports the address of the page to ``dev`` once the workers start."""

    def __init__(self, url: str, report: int):
        """``report`` is the file descriptor to write to, which is then closed."""
        self._url = url
        self._report = report

    def attach(self, running: Running) -> None:
        """Report it, now that the page shows these workers."""
        del running
        with os.fdopen(self._report, "w") as report:
            report.write(self._url)


class DevFeature(Feature):
    """``window-consumer dev``, and the form that sends records."""

    name = "dev"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"dev": "window_consumer.dev.cli:dev_command"}
    )

    def pages(self, context: PageContext) -> DevPages | None:
        """Return the page of the form; only ``dev`` has it, and only on this machine."""
        address = context.config.section(AdminConfig).address
        if READY not in os.environ or address is None or not address.is_loopback:
            return None
        from window_consumer.dev.page import DevPages  # noqa: PLC0415 - an optional extra

        return DevPages(context)

    @contextmanager
    def starting(self, start: AppStart) -> Iterator[RunningFeature | None]:
        """Create missing topics, before a start would fail without them."""
        report = os.environ.get(READY)
        if report is None:
            yield None
            return
        create_missing_topics(start)
        yield RunningDev(page_address(start.plan.config), int(report))


def page_address(config: Config) -> str:
    """Return the URL of the page."""
    admin = config.section(AdminConfig)
    return f"{'http' if admin.tls.certificate is None else 'https'}://{admin.address}/"


def create_missing_topics(start: AppStart) -> None:
    """Create the missing topics that workers read, unless ``topics.create`` forbids it.

    Every start creates topics for copies. Raises like ``Clients.connect``.
    """
    if not start.plan.config.topics.create:
        return
    for worker in start.plan.workers:
        names = () if worker.config.own_topics is not None else worker.config.topics
        if not names:
            continue
        cluster = Clients.connect(start.plan.loaded, worker.config, start.oauth_token).cluster
        missing = set(names) - cluster.topics(names).keys()
        cluster.create(
            NewCopyTopic(name, _PARTITIONS, BROKERS_REPLICATION, {}) for name in sorted(missing)
        )
