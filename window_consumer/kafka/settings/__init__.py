"""The librdkafka settings of our clients: those that we set, and those that users may not set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attrs import frozen

from window_consumer.kafka.settings.java_properties import java_advice

Settings = dict[str, Any]
Kind = Literal["consumer", "producer", "admin"]
Protocol = Literal["consumer", "classic"]

_LISTED_FOR_CONSUMERS = """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs
    consume.callback.max.messages consume_cb coordinator.query.interval.ms enable.auto.commit
    enable.auto.offset.store enable.partition.eof fetch.error.backoff.ms fetch.max.bytes
    fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms fetch.wait.max.ms group.id
    group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms
    max.poll.records offset.store.method offset.store.path offset.store.sync.interval.ms
    offset_commit_cb partition.assignment.strategy queued.max.messages.kbytes queued.min.messages
    rebalance_cb session.timeout.ms
"""
_LISTED_FOR_PRODUCERS = """
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.report.only.error delivery.timeout.ms dr_cb dr_msg_cb enable.gapless.guarantee
    enable.idempotence linger.ms message.send.max.retries message.timeout.ms msg_order_cmp
    partitioner partitioner_cb produce.offset.report queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms
    queuing.strategy request.required.acks request.timeout.ms retries
    sticky.partitioning.linger.ms transaction.timeout.ms transactional.id
"""
CONSUMER_ONLY = frozenset(_LISTED_FOR_CONSUMERS.split())
"""Properties that librdkafka lists for consumers only; they do not reach producers."""

PRODUCER_ONLY = frozenset(_LISTED_FOR_PRODUCERS.split())
"""Properties that librdkafka lists for producers only; they do not reach consumers."""

BOOTSTRAP = frozenset({"bootstrap.servers", "metadata.broker.list"})
"""The two names of the property that every client needs."""

_COMMITS = "the window decides what is committed: only records with a final outcome"
_CALLBACK = "the framework needs this callback itself"
_REFUSED: dict[str, str] = {
    "enable.auto.commit": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "auto.commit.interval.ms": f"{_COMMITS}; see commit_interval",
    "enable.auto.offset.store": _COMMITS,
    "offset.store.method": _COMMITS,
    "offset.store.path": _COMMITS,
    "offset.store.sync.interval.ms": _COMMITS,
    "auto.offset.reset": "it would skip or repeat records silently; use on_no_offset and"
    " on_out_of_range",
    "group.id": "the worker's group is its key `group`",
    "enable.partition.eof": "its events would appear between the records",
    "group.protocol.type": "it creates another kind of group",
    "partitioner": "copies go where Java's producers put their key (murmur2_random)",
    "partitioner_cb": "copies go where Java's producers put their key (murmur2_random)",
    "delivery.report.only.error": "a record is finished when its copy's ack has been seen",
    "transactional.id": "copies are written at least once, outside of transactions",
    "test.mock.num.brokers": "use --embedded or EmbeddedBroker",
    "oauth_cb": "use @app.oauth_token",
    **dict.fromkeys(
        [
            "consume_cb",
            "dr_cb",
            "dr_msg_cb",
            "on_delivery",
            "error_cb",
            "log_cb",
            "logger",
            "offset_commit_cb",
            "on_commit",
            "rebalance_cb",
            "stats_cb",
            "throttle_cb",
            "background_event_cb",
            "socket_cb",
            "connect_cb",
            "closesocket_cb",
            "open_cb",
            "resolve_cb",
            "opaque",
            "interceptors",
        ],
        _CALLBACK,
    ),
}

_ONLY_WITH_VALUE: dict[str, tuple[frozenset[str], str]] = {
    "acks": (frozenset({"all", "-1"}), "a copy counts when all in-sync replicas have it"),
    "request.required.acks": (
        frozenset({"all", "-1"}),
        "a copy counts when all in-sync replicas have it",
    ),
    "enable.idempotence": (frozenset({"true"}), "a retried copy must not be written twice"),
    "isolation.level": (
        frozenset({"read_committed"}),
        "records of aborted transactions were never sent",
    ),
}

OF_MEMBERS = frozenset(
    {
        "group.protocol",
        "group.remote.assignor",
        "group.instance.id",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""Properties that concern members of a group only."""

_CLASSIC_ONLY = frozenset(
    {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}
)

PREFETCH_SHARE = 4
"""The client's prefetch gets a quarter of a worker's memory."""

_MIN_FETCH_BYTES = 1_000_000
"""librdkafka refuses a fetch.max.bytes below message.max.bytes; this is the default of the latter.
"""

_MAX_FETCH_BYTES = 52_428_800
"""librdkafka's own default of fetch.max.bytes."""


def refusals(settings: Mapping[str, Any], kind: Kind) -> Iterator[tuple[str, str]]:
    """Yield key and reason of each setting that would break a guarantee."""
    for key, value in settings.items():
        text = str(value).lower()
        if key == "oauth_cb" and callable(value):
            continue  # of a login; a file cannot name a function
        if key in _REFUSED:
            yield key, f"{key} may not be set: {_REFUSED[key]}"
        elif key in _ONLY_WITH_VALUE and text not in _ONLY_WITH_VALUE[key][0]:
            allowed, reason = _ONLY_WITH_VALUE[key]
            yield key, f"{key} must be {' or '.join(sorted(allowed))}: {reason}"
        elif (advice := java_advice(key, value)) is not None:
            yield key, advice
    if kind == "consumer" and settings.get("group.protocol") != "classic":
        for key in sorted(_CLASSIC_ONLY & settings.keys()):
            reason = "in the consumer protocol the broker decides it"
            yield key, f"{key} is for group.protocol: classic ({reason}): set that, or omit {key}"
    if settings.get("group.protocol") == "classic" and "group.remote.assignor" in settings:
        instead = "with classic use partition.assignment.strategy"
        yield "group.remote.assignor", f"it belongs to group.protocol: consumer; {instead}"


@frozen
class ConsumerNeeds:
    """The worker's needs, besides the user's settings of its consumer."""

    group: str | None
    """None for a consumer that joins no group and reads all partitions."""
    worker: str
    ordered: bool
    memory: int
    """Bytes; a quarter of it is the prefetch."""
    partitions: int = 4
    """Of all topics together; determines how much is prefetched for each partition."""


def group_protocols(user: Mapping[str, Any]) -> list[Protocol]:
    """Return the group protocols to try, in order; only one if the user chose it."""
    chosen = user.get("group.protocol")
    if chosen is None:
        return ["consumer", "classic"]
    return ["classic" if str(chosen).lower() == "classic" else "consumer"]


def consumer_settings(
    user: Mapping[str, Any], needs: ConsumerNeeds, protocol: Protocol
) -> Settings:
    """Return the settings of a worker's consumer; the user's override our defaults."""
    prefetch = needs.memory // PREFETCH_SHARE
    fetch = max(_MIN_FETCH_BYTES, min(_MAX_FETCH_BYTES, prefetch))
    ours: Settings = {
        "client.id": f"wc-{needs.worker}",
        # Once a partition's prefetch queue is full, librdkafka waits this long before it checks it
        # again. A loop that empties the queue faster starves: 0.3-0.6 M records/s with the default
        # of 1,000 ms, 1.6-2.2 M with 5 ms.
        "fetch.queue.backoff.ms": 5,
        "queued.max.messages.kbytes": max(1, prefetch // 1024),
        "queued.min.messages": _queued_min_messages(prefetch, needs.partitions),
        "fetch.max.bytes": fetch,
        "fetch.message.max.bytes": min(1_048_576, fetch),
        # New partitions and topics are seen within this time, at one request each half minute.
        "topic.metadata.refresh.interval.ms": 30_000,
    }
    if protocol == "consumer":
        # `range` keeps equal partition numbers of all topics together, so that a record and its
        # copies have one owner; the broker's default assignor scatters them.
        assignment: Settings = {"group.protocol": "consumer", "group.remote.assignor": "range"}
    else:
        strategy = "range" if needs.ordered else "cooperative-sticky"
        assignment = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
    fixed: Settings = {
        "group.id": needs.group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
    }
    if needs.group is None:
        user = {key: value for key, value in user.items() if key not in OF_MEMBERS}
        # Partitions come and go one by one, as in a cooperative group.
        strategy = "cooperative-sticky"
        assignment = {"group.protocol": "classic", "partition.assignment.strategy": strategy}
        fixed["group.id"] = f"wc-{needs.worker}"  # the client requires a name
    return {**ours, **assignment, **user, **fixed}


def _queued_min_messages(prefetch: int, partitions: int) -> int:
    # A small record costs about 500 bytes beside its payload, which only this setting bounds.
    # 20,000 to 50,000 per partition were as fast as the default of 100,000.
    return max(1_000, min(50_000, prefetch // 512 // max(1, partitions)))


def producer_settings(user: Mapping[str, Any], worker: str) -> Settings:
    """Return the settings of the producer that writes a worker's copies."""
    ours: Settings = {
        "client.id": f"wc-{worker}-copies",
        "linger.ms": 5,
        # The broker decides what is too large, by the topic's own limit.
        "message.max.bytes": 1_000_000_000,
        # A misspelled result topic should fail, not be created with the brokers' defaults.
        "allow.auto.create.topics": False,
    }
    fixed: Settings = {"acks": "all", "enable.idempotence": True, "partitioner": "murmur2_random"}
    return {**ours, **user, **fixed}


@frozen
class EventNeeds:
    """The needs of telemetry, besides the user's settings of its producer."""

    client_id: str
    acks: Literal["0", "1", "all"] = "1"
    timeout_s: float = 30.0
    """An event that is not acked in this time is lost, or sent again if its sender has it on disk.
    """
    queue_bytes: int = 32 * 1024 * 1024
    """How many bytes may wait for the broker; further events are refused."""


def event_settings(user: Mapping[str, Any], needs: EventNeeds) -> Settings:
    """Return the settings of a telemetry producer. The user's win unless they make it wait."""
    ours: Settings = {
        # Columns of numbers shrink to a fifth, and one request carries many batches.
        "compression.type": "zstd",
        "linger.ms": 100,
    }
    fixed: Settings = {
        "client.id": needs.client_id,
        "acks": needs.acks,
        "enable.idempotence": False,
        "queue.buffering.max.kbytes": max(1, needs.queue_bytes // 1024),
        "queue.buffering.max.messages": 100_000,
        "delivery.report.only.error": False,
        "message.timeout.ms": int(needs.timeout_s * 1000),
        "allow.auto.create.topics": False,
    }
    synonyms = ("request.required.acks", "delivery.timeout.ms", "transactional.id")
    kept = {key: value for key, value in user.items() if key not in synonyms}
    return {**ours, **kept, **fixed}


def admin_settings(user: Mapping[str, Any], worker: str) -> Settings:
    """Return the settings of the client that asks about topics and ACLs."""
    return {"client.id": f"wc-{worker}-admin", **user}
