"""The peers: what they are, what order they keep, and how each is set up."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from attrs import frozen

from benchmarks.workloads import Ordering

Slots = Literal["given", "one", "partitions", "keys", "unbounded"]
"""How many records a peer handles at once: as many as the workload says; one; one per partition;
one per key that it holds, without a limit; or all that it holds.
"""

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


@frozen
class Peer:
    """A way to consume a topic; ``runner`` is its program, which runs in ``environment``."""

    name: str
    title: str
    order: Ordering
    slots: Slots
    environment: str
    runner: str
    """A module of benchmarks.peers.runners, or a class of the environment's Maven project."""
    settings: str
    """The settings for throughput, for the notes below the table."""
    options: Mapping[str, str] = _NO_OPTIONS
    """Options of the runner."""
    ours: bool = False


_OURS = "as `window-consumer run` has it: defaults, `concurrency` as the workload says"
_TASKS = "1000"
"""The most keys of a workload whose handler waits."""

_ASYNC = f"as `window-consumer run` has it: defaults, `concurrency: {_TASKS}` whatever the workload"
_BACKOFF = "`fetch.queue.backoff.ms: 10`"
_JAVA = "Java client's defaults"
_KPIPE = f"{_JAVA}, a virtual thread each, `KafkaOffsetManager`"
_PYRALLEL = "`ExecutionMode.ASYNC`, `max_in_flight` as the workload says"

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
        "window-async-unordered",
        "window_consumer, `async def`, `ordering: unordered`",
        "unordered",
        "given",
        "ours",
        "ours",
        _ASYNC,
        {"ordering": "unordered", "kind": "async", "concurrency": _TASKS},
        ours=True,
    ),
    Peer(
        "window-async-key",
        "window_consumer, `async def`, `ordering: key`",
        "key",
        "given",
        "ours",
        "ours",
        _ASYNC,
        {"ordering": "key", "kind": "async", "concurrency": _TASKS},
        ours=True,
    ),
    Peer(
        "consumer-per-thread",
        "by hand: a consumer per thread",
        "partition",
        "partitions",
        "confluent-kafka",
        "consumer_threads",
        f"confluent-kafka, `consume(500)`, {_BACKOFF}, asynchronous commit after each batch",
    ),
    Peer(
        "poller-and-pool",
        "by hand: one poller, a pool, a commit per batch",
        "unordered",
        "given",
        "confluent-kafka",
        "poller_pool",
        f"confluent-kafka, `consume(500)`, {_BACKOFF}, `ThreadPoolExecutor`, waits for each batch",
    ),
    Peer(
        "threads-per-partition",
        "by hand: threads on one partition, with assign and seek",
        "unordered",
        "given",
        "confluent-kafka",
        "partition_threads",
        f"confluent-kafka, {_BACKOFF}, a consumer per thread, stripes of 100, a commit per stripe",
    ),
    Peer(
        "shared-offsets",
        "by hand: one poller, a pool, a shared map of offsets",
        "unordered",
        "given",
        "confluent-kafka",
        "shared_offsets",
        f"confluent-kafka, `consume(500)`, {_BACKOFF}, `ThreadPoolExecutor`, commits each second",
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
        "arroyo",
        "sentry-arroyo, `RunTask`",
        "partition",
        "one",
        "arroyo",
        "arroyo_steps",
        f"{_BACKOFF}, `ONCE_PER_SECOND`",
    ),
    Peer(
        "arroyo-threads",
        "sentry-arroyo, `RunTaskInThreads`",
        "unordered",
        "given",
        "arroyo",
        "arroyo_steps",
        f"{_BACKOFF}, `ONCE_PER_SECOND`, 16 pending futures a thread",
        {"kind": "threads"},
    ),
    Peer(
        "faststream",
        "FastStream",
        "partition",
        "one",
        "faststream",
        "faststream_confluent",
        "on confluent-kafka, `AckPolicy.ACK`: it commits after each record",
    ),
    Peer(
        "faststream-workers",
        "FastStream, `max_workers`",
        "unordered",
        "given",
        "faststream",
        "faststream_confluent",
        "on confluent-kafka, `AckPolicy.ACK_FIRST`, the only one that it allows: at most once",
        {"kind": "workers"},
    ),
    Peer(
        "faststream-concurrent",
        "FastStream with faststream-concurrent-aiokafka",
        "unordered",
        "given",
        "faststream",
        "faststream_concurrent",
        "on aiokafka, `AckPolicy.MANUAL`, commits after 500 records or 1 s",
    ),
    Peer(
        "pyrallel-key",
        "pyrallel-consumer, by key",
        "key",
        "given",
        "pyrallel-consumer",
        "pyrallel",
        f"{_PYRALLEL}, `key_hash`",
        {"order": "key_hash"},
    ),
    Peer(
        "pyrallel-unordered",
        "pyrallel-consumer, unordered",
        "unordered",
        "given",
        "pyrallel-consumer",
        "pyrallel",
        f"{_PYRALLEL}, `unordered`",
        {"order": "unordered"},
    ),
    Peer(
        "quixstreams",
        "quixstreams, `StreamingDataFrame.update`",
        "partition",
        "one",
        "quixstreams",
        "quix_frame",
        f"{_BACKOFF}, `commit_interval=1.0`",
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
        "aiokafka-gather",
        "aiokafka, a batch at once",
        "unordered",
        "given",
        "aiokafka",
        "aiokafka_loop",
        "`getmany(max_records=500)`, `gather` under a semaphore, commit after each batch",
        {"kind": "gather"},
    ),
    Peer(
        "java-loop",
        "Java: one loop",
        "partition",
        "one",
        "jvm",
        "Loop",
        f"{_JAVA}, `commitSync` after each batch",
        {"consumers": "1"},
    ),
    Peer(
        "java-consumer-per-thread",
        "Java: four loops",
        "partition",
        "partitions",
        "jvm",
        "Loop",
        f"{_JAVA}, `commitSync` after each batch, four threads",
        {"consumers": "4"},
    ),
    Peer(
        "spring-kafka",
        "spring-kafka",
        "partition",
        "partitions",
        "jvm",
        "Spring",
        f"{_JAVA}, `AckMode.BATCH`, `concurrency` as there are partitions",
    ),
    Peer(
        "share-consumer",
        "Java: share consumer with a pool",
        "unordered",
        "given",
        "jvm",
        "Share",
        f"{_JAVA}, explicit acknowledgement, `commitSync` after each batch",
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
    Peer(
        "kpipe-key",
        "kpipe, by key",
        "key",
        "keys",
        "kpipe",
        "Kpipe",
        _KPIPE,
        {"mode": "KEY_ORDERED"},
    ),
    Peer(
        "kpipe-parallel",
        "kpipe, in parallel",
        "unordered",
        "unbounded",
        "kpipe",
        "Kpipe",
        _KPIPE,
        {"mode": "PARALLEL"},
    ),
)

PEERS: dict[str, Peer] = {peer.name: peer for peer in _ALL}
