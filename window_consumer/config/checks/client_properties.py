"""Rules that tie a worker's keys to properties of its Kafka clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from window_consumer.config import units
from window_consumer.config.problems import Problem
from window_consumer.config.schema import Config, effective_kafka
from window_consumer.config.sections.kafka_properties import Client
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.kafka.settings.transactions import TIMEOUT_MS

DEFAULT_MAX_POLL_INTERVAL_MS: Final = 300_000
"""librdkafka's default."""

_SCATTERS: Final = """\
{key} is {value}, and ordering is {ordering}: copies of a record, from retry levels or dlq \
redrive, could be assigned to a different member than its partition, and would wait there forever
  to keep the order, leave {key} out: its default is range
  to keep {value}, write ordering: unordered"""


def problems_with_clients(config: Config, worker: WorkerConfig, tree: Tree) -> Iterator[Problem]:
    """Find keys of a worker that conflict with the properties of its clients."""
    yield from _must_be_below_half(
        config,
        worker,
        tree,
        ("revoke_timeout", worker.revoke_timeout),
        ("consumer", "max.poll.interval.ms", DEFAULT_MAX_POLL_INTERVAL_MS),
    )
    if worker.delivery is DeliveryMode.EXACTLY_ONCE:
        # Brokers abort transactions that stay open this long, and every one would.
        yield from _must_be_below_half(
            config,
            worker,
            tree,
            ("commit_interval", worker.commit_interval_s),
            ("producer", "transaction.timeout.ms", TIMEOUT_MS),
        )
    yield from _scatter(config, worker, tree)


def _must_be_below_half(
    config: Config,
    worker: WorkerConfig,
    tree: Tree,
    ours: tuple[str, float],
    theirs: tuple[Client, str, int],
) -> Iterator[Problem]:
    """Compare our duration, in seconds, with a client's property or its default, in ms."""
    (name, seconds), (client, key, default) = ours, theirs
    raw = effective_kafka(config, worker, client).get(key, default)
    if isinstance(raw, bool) or not re.fullmatch(r"[0-9]{1,18}", str(raw)):
        return  # librdkafka refuses it when the client is created, and reports its own range
    half_s = int(raw) / 1000 / 2
    if seconds < half_s:
        return
    set_at = _key_of(worker, client, key, tree)
    where = f" ({tree.origin(set_at).where})" if set_at else ", its default"
    path: Path = ("workers", worker.name, name)
    yield Problem(
        path if path in tree.origins or set_at is None else set_at,
        f"{name}, {units.format_duration(seconds)}, must be below half of "
        f"{key}, which is {raw}{where}; "
        f"write {name} below {units.format_duration(half_s)}, or raise {key}",
    )


def _scatter(config: Config, worker: WorkerConfig, tree: Tree) -> Iterator[Problem]:
    """Find assignors that do not keep equal partition numbers of all topics together.

    This applies without levels too: ``dlq redrive`` puts records into a retry topic.
    """
    if worker.ordering == "unordered" or worker.is_broadcast:
        return
    properties = effective_kafka(config, worker, "consumer")
    for key in ("group.remote.assignor", "partition.assignment.strategy"):
        value = properties.get(key, "range")
        if value != "range":
            path = _key_of(worker, "consumer", key, tree) or ("workers", worker.name, "kafka")
            yield Problem(path, _SCATTERS.format(key=key, value=value, ordering=worker.ordering))


def _key_of(worker: WorkerConfig, client: Client, key: str, tree: Tree) -> Path | None:
    for part in (("workers", worker.name, "kafka"), ("kafka",)):
        for path in ((*part, client, key), (*part, key)):
            if path in tree.origins:
                return path
    return None
