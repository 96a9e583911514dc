"""The section of one worker: its keys, and properties derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from attrs import field, frozen

from window_consumer.config import kinds, names
from window_consumer.config.options import about, declared_by_features
from window_consumer.config.sections import BatchConfig, RetryConfig, WindowConfig
from window_consumer.config.sections.broadcast import BroadcastConfig
from window_consumer.config.sections.concurrency import AutoConcurrency, concurrency_kind, pool_kind
from window_consumer.config.sections.fair import FairConfig
from window_consumer.config.sections.guards import BreakerConfig, NewFailureConfig, StallConfig
from window_consumer.config.sections.kafka_properties import KafkaConfig
from window_consumer.config.sections.rate import Rate, rate_kind
from window_consumer.config.sections.routes import NO_ROUTES, Routes, handlers_kind, routes_kind
from window_consumer.config.sections.ttl import HeaderTtl, ttl_kind
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.runtime.pools.registry import DEFAULT

T = TypeVar("T")

MIB = 1024**2

MINUTE_S = 60.0
HOUR_S = 3600.0


@frozen
class OwnTopics:
    """The topics of a built-in worker, which creates its source and names its own ladder."""

    retry: str
    """The template of its retry topics, with ``{delay}``."""
    dlq: str
    partitions: int
    """Those of its source where it has to be created."""
    targets: tuple[str, ...] = ()
    """The topics that it delivers to; a trailing * matches any ending."""

    def delivers_to(self, topic: str) -> bool:
        """Return whether it delivers records to a topic."""
        return any(
            topic.startswith(each[:-1]) if each.endswith("*") else topic == each
            for each in self.targets
        )


@frozen(kw_only=True)
class WorkerConfig:
    """A subscription, the handler for its records, and the bounds on memory and retries."""

    name: str = ""
    """The worker's key in the file; the loader fills it in."""
    own_topics: OwnTopics | None = None
    """Set for a built-in worker, which a section declares."""
    handled_by: str = ""
    """The section of the worker that is its handler; empty if the application has the handler."""
    has_batch: bool = False
    """Whether the section ``batch`` is given: such a handler gets batches."""
    enabled: bool = field(
        default=True,
        metadata=about(
            "Whether the worker runs.",
            kind=kinds.boolean(),
            reason="a configured worker is meant to run",
            decorators="never",
        ),
    )
    handler: str | tuple[str, ...] = field(
        default="",
        metadata=about(
            "The handler that the worker runs, or several: a record goes to the first one whose "
            "condition holds. Conditions are in decorators or in routes.",
            kind=handlers_kind(),
            reason="one worker for each handler is the usual case",
            default="the worker's own name",
            decorators="never",
        ),
    )
    topics: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The topics to read.",
            kind=kinds.list_of(kinds.kafka_name("topic"), "topic names"),
            default="none: topics or patterns are required",
            decorators="never",
        ),
    )
    patterns: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "Regular expressions instead of topics, searched in the names of the cluster's "
            "topics. Our own retry and dead-letter topics never match.",
            kind=kinds.list_of(
                kinds.text("a regular expression that begins with ^", names.wrong_pattern, r"^\^"),
                "regular expressions",
            ),
            default="none: topics or patterns are required",
        ),
    )
    group: str = field(
        default="",
        metadata=about(
            "The consumer group. The names of its retry and dead-letter topics begin with it. "
            "With delivery: broadcast there is none.",
            kind=kinds.kafka_name("group"),
            default="none: required",
        ),
    )
    delivery: DeliveryMode = field(
        default=DeliveryMode.AT_LEAST_ONCE,
        metadata=about(
            "How often a record may run. at_least_once: it is finished when its call has ended, "
            "and a crash repeats calls. exactly_once: results, copies and offsets are one Kafka "
            "transaction. at_most_once: it is finished before its one call, and a crash loses "
            "calls. broadcast: every process gets every record, without a group.",
            kind=kinds.member(DeliveryMode),
            reason="loses nothing; once= prevents repeated effects",
        ),
    )
    broadcast: BroadcastConfig = field(
        factory=BroadcastConfig,
        metadata=about(
            "With delivery: broadcast: where to begin, and what happens to failed records."
        ),
    )
    ordering: Literal["unordered", "key", "partition"] = field(
        default="unordered",
        metadata=about(
            "Which records wait for each other: none, those of one key, or all of a partition.",
            kind=kinds.choice("unordered", "key", "partition"),
            reason="order costs concurrency, and only the application knows whether it needs order",
        ),
    )
    concurrency: int | AutoConcurrency = field(
        default=16,
        metadata=about(
            "The handler calls that may run at once. auto, which means {auto: 1..200}, lets the "
            "worker choose by throughput and call durations. With pool: processes, auto ends at "
            "the processor cores that the process may use.",
            kind=concurrency_kind(),
            reason="16 handlers of 10 ms process 1,600 records/s, and a database can handle 16 "
            "connections; more processes than cores only take turns",
            default="16; with pool: processes the processor cores that the process may use",
        ),
    )
    pool: str = field(
        default=DEFAULT.name,
        metadata=about(
            "Where plain functions run: on threads, or in `concurrency` child processes. "
            "Processes suit handlers that keep a processor busy, and code that may crash.",
            kind=pool_kind(),
            reason="most handlers wait for something else, and threads cost little",
        ),
    )
    rate_per_process: Rate | None = field(
        default=None,
        metadata=about(
            "How many handler calls may start per unit of time, in each process: for the worker, "
            "for each key, for each partition or for each class of `fair`. burst is how many may "
            "start at once after a pause. Retries and copies count. Waiting records hold no slot "
            "and keep their order.",
            kind=rate_kind(),
            default="none: calls start as soon as a slot is free; burst: a tenth of a second",
        ),
    )
    fair: FairConfig = field(
        factory=FairConfig, metadata=about("Which classes of records share the slots, and how.")
    )
    memory: int = field(
        default=256 * MIB,
        metadata=about(
            "The bytes of payload that the worker may hold in prefetch, windows, buffers and "
            "copies.",
            kind=kinds.size(8 * MIB, 1024**4),
            reason="fits in a container of 512 MiB, including the overhead of each record",
        ),
    )
    window: WindowConfig = field(
        factory=WindowConfig, metadata=about("The size of each partition's window; rarely changed.")
    )
    batch: BatchConfig = field(
        factory=BatchConfig,
        metadata=about("Which records a batch handler gets together.", decorators="never"),
    )
    commit_interval: float | None = field(
        default=None,
        metadata=about(
            "How often progress is committed. With delivery: exactly_once, also how often results "
            "become visible.",
            kind=kinds.duration(0.01, MINUTE_S),
            reason="limits what a crash repeats, at two small requests a second; a transaction "
            "takes a few milliseconds",
            default="500ms; with delivery: exactly_once 100ms",
        ),
    )
    revoke_timeout: float = field(
        default=10.0,
        metadata=about(
            "How long running handlers may continue after their partition is revoked. Must be "
            "below half of max.poll.interval.ms.",
            kind=kinds.duration(0.0, 10 * MINUTE_S),
            reason="most handlers end within it; the next owner of the partition waits as long",
        ),
    )
    stop_timeout: float = field(
        default=20.0,
        metadata=about(
            "How long running handlers may continue after the process is asked to stop.",
            kind=kinds.duration(0.0, HOUR_S),
            reason="ends before Kubernetes kills the process, 30 s after its request",
        ),
    )
    retry: RetryConfig = field(
        factory=RetryConfig, metadata=about("What happens to a record whose handler failed.")
    )
    routes: Routes = field(
        default=NO_ROUTES,
        metadata=about(
            "Conditions for the worker's handlers; a condition here replaces the decorator's. A "
            "handler without a condition takes every record.",
            kind=routes_kind(),
            default="none: the conditions of the decorators",
            decorators="never",
        ),
    )
    otherwise: Literal["dead_letter", "skip", "stop"] = field(
        default="dead_letter",
        metadata=about(
            "What happens to a record that no handler takes: it is copied to the dead-letter "
            "topic, it is skipped and counted, or the worker stops.",
            kind=kinds.choice("dead_letter", "skip", "stop"),
            reason="no unexpected record is lost, and the others continue",
        ),
    )
    ttl: float | HeaderTtl | None = field(
        default=None,
        metadata=about(
            "How long a record may live, counted from its timestamp; a header can set it for each "
            "record. Checked before each call of a handler, with a tolerance of 5s for clock "
            "differences.",
            kind=ttl_kind(),
            default="none: records do not expire",
        ),
    )
    on_expired: Literal["dead_letter", "drop"] = field(
        default="dead_letter",
        metadata=about(
            "What happens to an expired record: it is copied to the dead-letter topic, or dropped "
            "and counted.",
            kind=kinds.choice("dead_letter", "drop"),
            reason="loses nothing that somebody may want to inspect",
        ),
    )
    breaker: BreakerConfig = field(
        factory=BreakerConfig,
        metadata=about("When most calls fail: stop calling for a while, and move no records."),
    )
    stall: StallConfig = field(
        factory=StallConfig, metadata=about("What happens to handler calls that do not return.")
    )
    on_new_failure: NewFailureConfig = field(
        factory=NewFailureConfig,
        metadata=about("What happens when a new version fails in a new way."),
    )
    features: Mapping[type, Any] = field(factory=dict, metadata=declared_by_features("worker"))
    """The sections of features, by class."""
    on_no_offset: Literal["earliest", "latest", "fail"] = field(
        default="earliest",
        metadata=about(
            "Where a group without a committed offset begins. Partitions that are added later "
            "always begin at their earliest record, and so do topics that appear while the worker "
            "runs and match a pattern.",
            kind=kinds.choice("earliest", "latest", "fail"),
            reason="skips nothing",
        ),
    )
    on_out_of_range: Literal["fail", "earliest", "latest"] = field(
        default="fail",
        metadata=about(
            "What to do if the committed offset is no longer, or not yet, in the log. The lost "
            "range is reported.",
            kind=kinds.choice("fail", "earliest", "latest"),
            reason="records were lost, and somebody should know before the worker continues",
        ),
    )
    kafka: KafkaConfig = field(
        factory=KafkaConfig,
        metadata=about("The worker's own Kafka properties, laid over those at the top."),
    )

    def section(self, kind: type[T]) -> T:
        """Return the section of a feature; its defaults for a worker that no file configures."""
        found: T | None = self.features.get(kind)
        return kind() if found is None else found

    @property
    def handlers(self) -> tuple[str, ...]:
        """The names of its handlers, in the order in which their conditions are tried."""
        return (self.handler,) if isinstance(self.handler, str) else self.handler

    @property
    def slots(self) -> int:
        """The most handler calls that may run at once."""
        concurrency = self.concurrency
        return concurrency if isinstance(concurrency, int) else concurrency.upper

    @property
    def is_broadcast(self) -> bool:
        """Whether every process gets every record."""
        return self.delivery is DeliveryMode.BROADCAST

    @property
    def parks(self) -> bool:
        """Whether the later records of a key wait for a failed one in the park topic."""
        return self.retry.on_failure == "park"

    @property
    def commit_interval_s(self) -> float:
        """How often progress is committed."""
        if self.commit_interval is not None:
            return self.commit_interval
        return 0.1 if self.delivery is DeliveryMode.EXACTLY_ONCE else 0.5

    @property
    def max_abandoned(self) -> int:
        """How many calls may be abandoned at once."""
        given = self.stall.max_abandoned
        return max(1, self.slots // 4) if given is None else given
