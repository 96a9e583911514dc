"""The sections that limit damage: the circuit breaker, and calls that hang."""

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
            "It opens when clearly more than this share of the new records failed; with 100% when "
            "all did. Only the first call of a record counts, neither retries nor copies in retry "
            "levels, and no failure that is fatal.",
            kind=kinds.percent(0.01, 1.0),
            reason="bad records are few; when most records fail, something else is wrong",
        ),
    )
    window: float = field(
        default=30.0,
        metadata=about(
            "Over how long the share is taken, beside that of the last min_calls records.",
            kind=kinds.duration(1.0, HOUR_S),
            reason="slow handlers make enough calls in it, and it forgets an outage that is over",
        ),
    )
    min_calls: int = field(
        default=20,
        metadata=about(
            "Fewer new records tell nothing. When most of the last so many failed, records whose "
            "attempts are spent are held for a moment.",
            kind=kinds.whole_number(1, 1000),
            reason="with fewer a few bad records in a row would open it",
        ),
    )
    cool_down: float = field(
        default=30.0,
        metadata=about(
            "How long it stays open before one new record at a time finds out whether things are "
            "well again. Also the longest pause where most new records raise RetryLater.",
            kind=kinds.duration(0.1, HOUR_S),
            reason="a restart of what the handler needs takes about as long",
        ),
    )


@frozen(kw_only=True)
class StallConfig:
    """What happens to handler calls that do not return."""

    after: float = field(
        default=30.0,
        metadata=about(
            "A call that has been running for so long is stalled: longer than any call that is in "
            "order.",
            kind=kinds.duration(0.1, 24 * HOUR_S),
            reason="most calls that take longer never return: one without a timeout, a lock",
        ),
    )
    action: Literal["move", "report"] = field(
        default="move",
        metadata=about(
            "report: the log says where the call stands. move: it is abandoned as well, and its "
            "record climbs the ladder with reason STALLED; with order its lane waits until the "
            "call has really ended. With on_failure: block it is only reported.",
            kind=kinds.choice("move", "report"),
            reason="one hanging call would hold up its partition when the window is full",
        ),
    )
    max_abandoned: int | None = field(
        default=None,
        metadata=about(
            "The abandoned calls that may be running at once. One more, and the worker stops: "
            "threads cannot be stopped, only the process can.",
            kind=kinds.whole_number(0, 10_000),
            reason="bounds the threads; when more calls hang a new process does better",
            default="a quarter of concurrency (of its upper end with auto), at least 1",
        ),
    )
