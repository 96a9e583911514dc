"""The peers: what they are, what order they keep, and how each is set up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from attrs import frozen

from benchmarks.workloads import Ordering

Slots = Literal["given", "one", "partitions", "keys", "unbounded"]
"""How many records a peer handles at once: as many as the workload says; one; one for each
partition; one for each key that it holds, without a limit of its own; or all that it holds."""

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@frozen
class Peer:
    """A way to consume a topic; ``runner`` is its program, ``environment`` where that can run."""

    name: str
    title: str
    order: Ordering
    slots: Slots
    environment: str
    runner: str
    """A module of benchmarks.peers.runners, or a class of the environment's Maven project."""
    settings: str
    """What was set for throughput, for the notes of the table."""
    options: Mapping[str, str] = _NO_OPTIONS
    """Options of the runner."""
    ours: bool = False


_OURS = "as `window-consumer run` has it: defaults, `concurrency` as the workload says"
_BACKOFF = "`fetch.queue.backoff.ms: 10`"
_JAVA = "Java client's defaults"

_ALL = (
    Peer(
        "window-unordered",
        "window_consumer, `ordering: unordered`",
        "unordered",
        "given",
        "ours",
        "ours",
        _OURS,
        {"ordering": "unordered"},
        ours=True,
    ),
    Peer(
        "window-key",
        "window_consumer, `ordering: key`",
        "key",
        "given",
        "ours",
        "ours",
        _OURS,
        {"ordering": "key"},
        ours=True,
    ),
    Peer(
        "window-partition",
        "window_consumer, `ordering: partition`",
        "partition",
        "partitions",
        "ours",
        "ours",
        _OURS,
        {"ordering": "partition"},
        ours=True,
    ),
    Peer(
        "confluent-loop",
        "confluent-kafka alone: one loop",
        "partition",
        "one",
        "confluent-kafka",
        "confluent_loop",
        f"`consume(500)`, {_BACKOFF}, asynchronous commit each second",
    ),
    Peer(
        "aiokafka",
        "aiokafka, one after another",
        "partition",
        "one",
        "aiokafka",
        "aiokafka_loop",
        "`getmany(max_records=500)`, commit after each batch",
    ),
    Peer(
        "parallel-consumer-key",
        "Confluent parallel-consumer, by key",
        "key",
        "given",
        "jvm",
        "ParallelConsumer",
        f"{_JAVA}, `maxConcurrency` as the workload says, default commit mode",
        {"order": "KEY"},
    ),
    Peer(
        "parallel-consumer-unordered",
        "Confluent parallel-consumer, unordered",
        "unordered",
        "given",
        "jvm",
        "ParallelConsumer",
        f"{_JAVA}, `maxConcurrency` as the workload says, default commit mode",
        {"order": "UNORDERED"},
    ),
)

PEERS: dict[str, Peer] = {peer.name: peer for peer in _ALL}
