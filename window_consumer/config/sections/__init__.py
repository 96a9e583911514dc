"""The sections of the configuration that have keys of their own, see ``schema``."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about
from window_consumer.config.sections.mask import field_names_kind

ExceptionName = str | type[BaseException]
"""A dotted name from YAML, or the class itself from a decorator."""

DAY_S = 86400.0
HOUR_S = 3600.0


@frozen(kw_only=True)
class TopicsConfig:
    """What the framework may do to the topics that it writes to."""

    create: bool = field(
        default=True,
        metadata=about(
            "Whether a start may create missing retry and dead-letter topics, and give retry "
            "topics as many partitions as their source.",
            kind=kinds.boolean(),
            reason="a first start works without preparation; the broker's permissions still decide",
        ),
    )
    dlq: str = field(
        default="{group}.{topic}.dlq",
        metadata=about(
            "The name of a worker's dead-letter topics.",
            kind=kinds.template("{group}.{topic}.dlq"),
            reason="with the group first, one prefixed permission covers all topics of a group, "
            "and no pattern for source topics matches them",
        ),
    )
    retry: str = field(
        default="{group}.{topic}.retry.{delay}",
        metadata=about(
            "The name of a worker's retry topics; {delay} is a level's delay, or `now` for the "
            "topic of redriven dead letters.",
            kind=kinds.template("{group}.{topic}.retry.{delay}", "{delay}"),
            reason="one topic per delay, so that no long wait delays a short one",
        ),
    )
    park: str = field(
        default="{group}.{topic}.park",
        metadata=about(
            "The name of the topics where records wait behind an earlier one of their key.",
            kind=kinds.template("{group}.{topic}.park"),
            reason="as for dlq",
        ),
    )
    dlq_retention: float = field(
        default=14 * DAY_S,
        metadata=about(
            "How long the dead-letter topics that we create keep their records.",
            kind=kinds.duration(1.0, 36500 * DAY_S),
            reason="long enough to notice, fix the cause and redrive after a holiday",
        ),
    )


@frozen(kw_only=True)
class DlqConfig:
    """What readers see of dead letters, and what is hidden."""

    mask: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The same as `fields` of a rule in `mask` for all topics.",
            kind=field_names_kind(),
            reason="only the application knows what is confidential",
        ),
    )


@frozen(kw_only=True)
class ErrorsConfig:
    """What is shown of the exceptions that handlers raise."""

    message: Literal["full", "class"] = field(
        default="full",
        metadata=about(
            "Whether logs, dead letters, traces and pages get the texts of exceptions, or only "
            "their classes and stacks. A text may quote a record; `@app.redact` can remove "
            "confidential parts.",
            kind=kinds.choice("full", "class"),
            reason="a dead letter should explain its failure",
        ),
    )


@frozen(kw_only=True)
class WindowConfig:
    """The size of one partition's window."""

    cells: int = field(
        default=32,
        metadata=about(
            "The cells that may be open at once.",
            kind=kinds.whole_number(2, 1024),
            reason="with the default cell_records, 16,000 records: then the finished records "
            "beyond the committed offset always fit into the commit's metadata",
        ),
    )
    cell_records: int = field(
        default=500,
        metadata=about(
            "The records of a full cell.",
            kind=kinds.whole_number(1, 100_000),
            reason="the client delivers fastest in batches of this size",
        ),
    )


@frozen(kw_only=True)
class BatchConfig:
    """When a batch handler gets which list of records."""

    max_records: int = field(
        default=1000,
        metadata=about(
            "The records of a full batch, which is called at once.",
            kind=kinds.whole_number(1, 100_000),
            reason="writing more rows at once saves little, and most bulk interfaces accept this "
            "many",
            decorators="lifted",
        ),
    )
    min_records: int = field(
        default=1,
        metadata=about(
            "A batch with this many records is called when a slot is free and no more records are "
            "waiting.",
            kind=kinds.whole_number(1, 100_000),
            reason="no record waits needlessly, and under load batches grow while slots are busy",
            decorators="lifted",
        ),
    )
    max_wait: float = field(
        default=0.5,
        metadata=about(
            "A smaller batch is called after this time, counted from when its first record could "
            "start.",
            kind=kinds.duration(0.001, HOUR_S),
            reason="half a second hardly matters to batched records",
            decorators="lifted",
        ),
    )


@frozen(kw_only=True)
class ParkConfig:
    """Limits of on_failure: park, and what happens after a dead letter."""

    max_keys: int = field(
        default=100_000,
        metadata=about(
            "While this many keys of a partition are in the ladder, no more of its records are "
            "parked: later ones wait in the source topic, and its window fills.",
            kind=kinds.whole_number(1, 10_000_000),
            reason="more keys than that point to an outage, which the breaker should have caught",
        ),
    )
    max_records: int = field(
        default=1_000_000,
        metadata=about(
            "The same limit for all waiting records of these keys.",
            kind=kinds.whole_number(1, 100_000_000),
            reason="about ten megabytes of memory",
        ),
    )
    on_dead: Literal["go_on", "follow"] = field(
        default="go_on",
        metadata=about(
            "What happens to records that wait behind a dead letter. go_on: they are "
            "called. follow: they become dead letters, too, with the header wc-follows, and "
            "one redrive returns them in order.",
            kind=kinds.choice("go_on", "follow"),
            reason="one bad record should not stop a key, unless its records depend on each other",
        ),
    )


@frozen(kw_only=True)
class RetryConfig:
    """What happens to a record whose handler failed."""

    attempts: int = field(
        default=3,
        metadata=about(
            "Handler calls for a record, the first included.",
            kind=kinds.whole_number(1, 1000),
            reason="survives a short outage; more attempts mostly repeat the same error",
        ),
    )
    backoff: tuple[float, float] = field(
        default=(0.2, 5.0),
        metadata=about(
            "The wait before a record's next call: it begins at the lower end, doubles each time "
            "up to the upper end, and has jitter.",
            kind=kinds.duration_range(),
            reason="longer than most hiccups, and short beside max.poll.interval.ms",
        ),
    )
    crash_attempts: int = field(
        default=3,
        metadata=about(
            "How often the process may die while a record runs alone, before that record leaves "
            "without another call. Records run alone after the second crash at the same "
            "committed offset.",
            kind=kinds.whole_number(1, 100),
            reason="one death may be a kill or a lost machine; three while the same record ran "
            "alone are not",
        ),
    )
    levels: tuple[float, ...] = field(
        default=(),
        metadata=about(
            "Retry topics: the delay of each, shortest first. A record without attempts left "
            "moves to the first one, is called again after its delay, and moves on.",
            kind=kinds.list_of(kinds.duration(0.1, 365 * DAY_S), "durations", may_be_empty=True),
            reason="each level is a topic with its own partitions, and only the application knows "
            "whether to wait for an outage of minutes",
        ),
    )
    attempts_per_level: int = field(
        default=1,
        metadata=about(
            "Handler calls for a record at each level, with the backoff between them.",
            kind=kinds.whole_number(1, 1000),
            reason="after a wait of minutes, a few milliseconds more seldom help",
        ),
    )
    fatal: tuple[ExceptionName, ...] = field(
        default=(),
        metadata=about(
            "Exception classes for which retrying is useless. Subclasses count; if classes of "
            "both lists match, the most specific one decides.",
            kind=kinds.list_of(
                kinds.exception_class(), "dotted names of exception classes", may_be_empty=True
            ),
            reason="only the application knows which errors are permanent",
            decorators="lifted",
        ),
    )
    retryable: tuple[ExceptionName, ...] = field(
        default=(),
        metadata=about(
            "Exception classes to retry although one of their base classes is fatal.",
            kind=kinds.list_of(
                kinds.exception_class(), "dotted names of exception classes", may_be_empty=True
            ),
            reason="all other errors are retried anyway",
            decorators="lifted",
        ),
    )
    when_spent: Literal["dead_letter", "stop", "drop"] = field(
        default="dead_letter",
        metadata=about(
            "What happens to a record without attempts left: it is copied to the dead-letter "
            "topic, the worker stops, or the record is dropped and counted.",
            kind=kinds.choice("dead_letter", "stop", "drop"),
            reason="nothing is lost and the partition continues",
        ),
    )
    on_oversize: Literal["hold", "stop", "reference"] = field(
        default="hold",
        metadata=about(
            "What to do with a copy that is too large for its topic even with shortened error "
            "texts: retry until somebody raises the limit, stop the worker, or write a "
            "reference instead of the value.",
            kind=kinds.choice("hold", "stop", "reference"),
            reason="loses nothing: only the committed offset stops, and there is time to react",
        ),
    )
    on_failure: Literal["overtake", "block", "park"] | None = field(
        default=None,
        metadata=about(
            "block: the lane waits and its record is retried without end. overtake: a record "
            "without attempts left leaves, and later ones of its lane continue. park: it moves to "
            "the levels, and later ones of its key wait for it in the park topic.",
            kind=kinds.choice("overtake", "block", "park"),
            reason="an ordered worker must choose between order and progress",
            default="overtake without ordering; else none: required",
        ),
    )
    park: ParkConfig = field(
        factory=ParkConfig,
        metadata=about("Limits of on_failure: park, and what happens after a dead letter."),
    )
