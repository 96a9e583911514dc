"""An embedded broker from the command line: ``broker``, and ``run --embedded``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from window_consumer.cli.logs import MaskedFormatter
from window_consumer.cli.run import run_until_stopped
from window_consumer.cli.signals import Signals
from window_consumer.config import TopicNames
from window_consumer.kafka.embedded import LIMITS, EmbeddedBroker
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition

PARTITIONS = 4

_WARNING = (
    f"for trying things out. {LIMITS[0]} It is not a full Kafka: window-consumer broker --limits"
    f" lists {len(LIMITS)} limitations."
)
"""A one-line summary of the limits."""


@click.command("broker")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="Create a topic, by default with 4 partitions; may be repeated.",
)
@click.option("--brokers", type=click.IntRange(1, 16), default=1, show_default=True)
@click.option("--limits", is_flag=True, help="Print its limitations, and exit.")
def broker_command(*, topics: Sequence[str], brokers: int, limits: bool) -> int:
    """Keep an embedded broker up until Ctrl-C or SIGTERM, and print its address.

    For experiments on this machine. It keeps little, silently drops the oldest records, and is not
    a complete Kafka: see --limits.
    """
    if limits:
        click.echo("\n".join(LIMITS))
        return 0
    wanted = dict(_topic(text) for text in topics)
    signals = Signals.install()
    with EmbeddedBroker(brokers=brokers, topics=wanted) as broker:
        click.echo(f"warning: {_WARNING}", err=True)
        click.echo(broker.bootstrap)
        signals.stop.wait()
    return 0


def _topic(text: str) -> tuple[str, int]:
    name, _, partitions = text.partition(":")
    if partitions and not (partitions.isdecimal() and int(partitions)):
        raise UsageError(f"--topic {text}: {partitions!r} is not a number of partitions")
    return name, int(partitions or PARTITIONS)


def run_embedded(
    app: AppDefinition,
    config: Path,
    only: Sequence[str],
    overrides: Sequence[str],
    formatter: MaskedFormatter,
) -> int:
    """Run a configuration against a broker in this process, with empty topics."""
    with EmbeddedBroker() as broker:
        settings = [*_overrides(broker), *overrides]
        plan = app.plan(config, only=only, overrides=settings)
        for name in _topics_of(plan):
            broker.create_topic(name, PARTITIONS)
        click.echo(f"embedded broker at {broker.bootstrap}", err=True)
        return run_until_stopped(app, plan, formatter, None)


def _overrides(broker: EmbeddedBroker) -> list[str]:
    settings: Mapping[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "plaintext",
    }
    waits = broker.client_settings()["fetch.wait.max.ms"]
    return [
        *(f"kafka.{key}={value}" for key, value in settings.items()),
        f"kafka.consumer.fetch.wait.max.ms={waits}",
    ]


def _topics_of(plan: AppPlan) -> list[str]:
    topics = {topic: None for worker in plan.workers for topic in worker.config.topics}
    copies = {
        copy: None
        for worker in plan.workers
        for topic in worker.config.topics
        for copy in TopicNames(worker.config, plan.config.topics).ladder(topic)
    }
    return [*topics, *copies]
