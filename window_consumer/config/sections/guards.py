"""The sections that limit damage: the circuit breaker, hanging calls, and new failures."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.options import about

HOUR_S = 3600.0


@frozen(kw_only=True)
class BreakerConfig:
    """When a worker stops calling its handler for a while, because most new records fail."""

    enabled: bool = field(
        default=True,
        metadata=about(
            "Whether there is a circuit breaker.",
            kind=kinds.boolean(),
            reason="without it an outage of a database moves a whole topic to the dead letters",
        ),
    )
    failures: float = field(
        default=0.5,
        metadata=about(
            "The breaker opens when more than this share of the last new records failed; with "
            "100%, when all did. Only a record's first call counts: no retries, no copies in "
            "retry levels, and no fatal failures.",
            kind=kinds.percent(0.01, 1.0),
            reason="bad records are few; when most records fail, something else is wrong",
        ),
    )
    window: float = field(
        default=30.0,
        metadata=about(
            "The last records are forgotten after this time without a new one. Pages show "
            "failures over the same time.",
            kind=kinds.duration(1.0, HOUR_S),
            reason="long enough for slow handlers to make enough calls",
        ),
    )
    min_calls: int = field(
        default=20,
        metadata=about(
            "The breaker considers this many of the last new records. In an ordered worker a key "
            "counts once.",
            kind=kinds.whole_number(1, 1000),
            reason="with fewer, some bad records in a row would open it",
        ),
    )
    cool_down: float = field(
        default=30.0,
        metadata=about(
            "The longest time between two calls that test whether an outage is over, and the "
            "longest pause while most new records raise RetryLater.",
            kind=kinds.duration(0.1, HOUR_S),
            reason="one call every half minute does no harm in a long outage",
        ),
    )
    max_hold: float = field(
        default=600.0,
        metadata=about(
            "After this long without a success and without new records, held records are "
            "called once more, one at a time, and leave if they fail; at most 20 each time while "
            "lag waits behind full windows.",
            kind=kinds.duration_or_never(1.0, 24 * HOUR_S),
            reason="longer than most outages; records at the end of a topic that always fail still "
            "leave within minutes",
        ),
    )


@frozen(kw_only=True)
class StallConfig:
    """What happens to handler calls that do not return."""

    after: float = field(
        default=30.0,
        metadata=about(
            "A call that runs longer than this is stalled. Set it above the longest healthy call.",
            kind=kinds.duration(0.1, 24 * HOUR_S),
            reason="calls that take longer rarely return: they lack a timeout, or wait for a lock",
        ),
    )
    action: Literal["move", "retry", "report"] = field(
        default="move",
        metadata=about(
            "report: the log shows the call's stack. move: the call is also abandoned, and its "
            "record climbs the ladder with reason STALLED; with ordering, its lane waits until "
            "the call has really ended. With on_failure: block it is only reported. retry, where a "
            "call can be ended (coroutines, pool: processes): as move, but the record is called "
            "again here before it climbs, as after any other failure.",
            kind=kinds.choice("move", "retry", "report"),
            reason="one hanging call would hold up its partition when the window is full",
        ),
    )
    max_abandoned: int | None = field(
        default=None,
        metadata=about(
            "How many abandoned calls may run at once. One more stops the worker, because "
            "a thread cannot be stopped, only the process.",
            kind=kinds.whole_number(0, 10_000),
            reason="limits the threads; if more calls hang, the process should restart",
            default="a quarter of concurrency (of its upper end with auto), at least 1",
        ),
    )


@frozen(kw_only=True)
class NewFailureConfig:
    """What happens when a version of the application fails in a new way."""

    action: Literal["pause", "alert"] | None = field(
        default=None,
        metadata=about(
            "pause: nothing more starts, and nothing leaves, until somebody resumes the worker. "
            "alert: a log line, a metric and `doctor` report it. Both need App(version=...).",
            kind=kinds.choice("pause", "alert"),
            default="none: new failures are not looked for",
        ),
    )
    share: float = field(
        default=0.05,
        metadata=about(
            "A failure counts when more than this share of the calls end in it. It is new if its "
            "fingerprint (the error's class and where it was raised) is not among the newest "
            "10,000 dead letters that other versions had written before the start. Only a "
            "record's first call in a topic counts.",
            kind=kinds.percent(0.001, 1.0),
            reason="single bad records come with any version; a bad version fails for many",
        ),
    )
    min_calls: int = field(
        default=20,
        metadata=about(
            "A failure is judged only after this many calls in the window.",
            kind=kinds.whole_number(1, 100_000),
            reason="a single failure would be a large share of fewer calls",
        ),
    )
    window: float = field(
        default=60.0,
        metadata=about(
            "The time over which each process counts its calls and failures.",
            kind=kinds.duration(1.0, HOUR_S),
            reason="long enough for slow handlers to make enough calls",
        ),
    )
