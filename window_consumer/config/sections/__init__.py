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
            "Whether missing retry and dead-letter topics may be made at the start, and retry "
            "topics be given as many partitions as their source.",
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
            "The name of a worker's retry topics; {delay} is a level's delay, and now for the "
            "topic that dead letters are put back into.",
            kind=kinds.template("{group}.{topic}.retry.{delay}", "{delay}"),
            reason="one topic for each delay, so that no long wait stands in front of a short one",
        ),
    )
    dlq_retention: float = field(
        default=14 * DAY_S,
        metadata=about(
            "How long a dead-letter topic that we make keeps its records.",
            kind=kinds.duration(1.0, 36500 * DAY_S),
            reason="long enough to notice, to mend the cause and to redrive after a holiday",
        ),
    )


@frozen(kw_only=True)
class DlqConfig:
    """What dead letters show to a reader, and what they hide."""

    mask: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The same as `fields` of a rule in `mask` for all topics.",
            kind=field_names_kind(),
            reason="what is confidential, only the application knows",
        ),
    )


@frozen(kw_only=True)
class ErrorsConfig:
    """What is shown of the exceptions that handlers raise."""

    message: Literal["full", "class"] = field(
        default="full",
        metadata=about(
            "Whether logs, dead letters, traces and pages get the texts of exceptions, or only "
            "their classes and stacks. A text may quote a record; `@app.redact` can take out of it "
            "what is confidential.",
            kind=kinds.choice("full", "class"),
            reason="who looks into a dead letter needs to know what was wrong with it",
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
            reason="with the default cell_records, 16,000 records: what is done beyond the "
            "committed offset then always fits into the commit's metadata",
        ),
    )
    cell_records: int = field(
        default=500,
        metadata=about(
            "The records of a full cell.",
            kind=kinds.whole_number(1, 100_000),
            reason="the batch size at which the client delivers fastest",
        ),
    )


@frozen(kw_only=True)
class BatchConfig:
    """When a batch handler gets which list of records."""

    max_records: int = field(
        default=1000,
        metadata=about(
            "The records of a full batch, which goes out at once.",
            kind=kinds.whole_number(1, 100_000),
            reason="where writing many rows in one go stops getting cheaper, and what most bulk "
            "interfaces take",
            decorators="lifted",
        ),
    )
    min_records: int = field(
        default=1,
        metadata=about(
            "A batch with so many records goes out when a slot is free and nothing more is there.",
            kind=kinds.whole_number(1, 100_000),
            reason="nobody waits without need, and under load batches grow while slots are busy",
            decorators="lifted",
        ),
    )
    max_wait: float = field(
        default=0.5,
        metadata=about(
            "A batch with fewer records goes out after so long, counted from when its first record "
            "could start.",
            kind=kinds.duration(0.001, HOUR_S),
            reason="half a second more is hardly noticed where records are collected anyway",
            decorators="lifted",
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
            reason="gets over a short outage; more mostly repeats the same error",
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
            "How often the process may end while a record runs alone, before that record leaves "
            "without being called again. Alone it runs after the second unclean end at the same "
            "committed offset.",
            kind=kinds.whole_number(1, 100),
            reason="one end may be a kill or a lost machine; three, each with this very record "
            "started alone, are not",
        ),
    )
    levels: tuple[float, ...] = field(
        default=(),
        metadata=about(
            "Retry topics: the delay of each, shortest first. A record whose attempts are spent "
            "moves to the first one, is called again when its delay is over, and moves on.",
            kind=kinds.list_of(kinds.duration(0.1, 365 * DAY_S), "durations", may_be_empty=True),
            reason="each level is a topic with its own partitions; whether an outage of minutes "
            "should be waited for, only the application knows",
        ),
    )
    attempts_per_level: int = field(
        default=1,
        metadata=about(
            "Handler calls for a record at each level, with the backoff between them.",
            kind=kinds.whole_number(1, 1000),
            reason="after a wait of minutes a few milliseconds more seldom help",
        ),
    )
    fatal: tuple[ExceptionName, ...] = field(
        default=(),
        metadata=about(
            "Exception classes that retrying cannot help. Subclasses count; where classes of both "
            "lists fit, the most specific one decides.",
            kind=kinds.list_of(
                kinds.exception_class(),
                "dotted names of exception classes",
                may_be_empty=True,
            ),
            reason="which errors are hopeless, only the application knows",
            decorators="lifted",
        ),
    )
    retryable: tuple[ExceptionName, ...] = field(
        default=(),
        metadata=about(
            "Exception classes to retry although a base class of theirs is fatal.",
            kind=kinds.list_of(
                kinds.exception_class(),
                "dotted names of exception classes",
                may_be_empty=True,
            ),
            reason="what is not fatal is retried anyway",
            decorators="lifted",
        ),
    )
    when_spent: Literal["dead_letter", "stop", "drop"] = field(
        default="dead_letter",
        metadata=about(
            "What becomes of a record that has no attempts left: a copy in the dead-letter topic, "
            "the worker stops, or the record is dropped and counted.",
            kind=kinds.choice("dead_letter", "stop", "drop"),
            reason="nothing is lost and the partition goes on",
        ),
    )
    on_oversize: Literal["hold", "stop", "reference"] = field(
        default="hold",
        metadata=about(
            "What to do with a copy that does not fit into its topic, the error's texts already "
            "cut: try again until somebody raises the limit, stop the worker, or write a "
            "reference to the value instead of the value.",
            kind=kinds.choice("hold", "stop", "reference"),
            reason="loses nothing and needs nobody at once: only the offset stands still",
        ),
    )
    on_failure: Literal["overtake", "block"] | None = field(
        default=None,
        metadata=about(
            "block: the lane waits and its record is retried without end. overtake: the record "
            "leaves when its attempts are spent, and later ones of its lane go on.",
            kind=kinds.choice("overtake", "block"),
            reason="order or progress: with an ordered worker somebody has to choose",
            default="overtake without ordering; else none: has to be given",
        ),
    )
