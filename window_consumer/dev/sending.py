"""Sends the record of the form with the library's producer, like applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import frozen

from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.oauth import token_setting
from window_consumer.model.errors import RunError, UsageError
from window_consumer.plan.clients import Clients
from window_consumer.plan.feature import PageContext
from window_consumer.producer.producer import Producer

_ACK_S: Final = 10.0
"""The longest wait for an answer; a person waits."""


@frozen
class FormRecord:
    """A record to send. Without a partition its key decides; without a key, any."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    partition: int | None = None


@frozen
class SentPlace:
    """The place where the brokers wrote the record."""

    topic: str
    partition: int
    offset: int


def send(context: PageContext, worker: str, record: FormRecord) -> SentPlace:
    """Write a record to the cluster of a worker, and wait for the ack. Any thread may call.

    Raises WindowConsumerErrors; a UsageError names the wrong field first.
    """
    clients = Clients.connect(
        context.loaded, context.config.workers[worker], context.oauth_token, _ACK_S
    )
    _refuse_missing(clients.cluster, record)
    properties = {**clients.producer, **token_setting(clients.producer, clients.oauth_token)}
    producer = Producer(properties, max_block=_ACK_S)
    try:
        future = producer.send(
            record.topic,
            record.key,
            record.value,
            headers=record.headers,
            partition=record.partition,
        )
        written = future.result(_ACK_S)
    except (TypeError, ValueError) as problem:
        raise UsageError(str(problem)) from problem
    except TimeoutError:
        raise RunError(
            f"{record.topic}: the brokers have not acknowledged the record within {_ACK_S:g} s; it"
            " may still arrive"
        ) from None
    finally:
        producer.close(timeout=0.0)
    return SentPlace(written.topic, written.partition, written.offset)


def _refuse_missing(cluster: Cluster, record: FormRecord) -> None:
    """Refuse a missing topic or partition at once: the producer would wait for it."""
    found = cluster.topics([record.topic]).get(record.topic)
    if found is None:
        raise UsageError(f"topic: the cluster has no topic {record.topic}: create it")
    if record.partition is not None and record.partition >= found.partitions:
        raise UsageError(f"partition: {record.topic} has partitions 0 to {found.partitions - 1}")
