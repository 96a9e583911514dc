"""The section ``delay`` and the worker that it adds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Final, Literal

from attrs import field, frozen

from window_consumer.config import BreakerConfig, RetryConfig, WorkerConfig, format_duration, kinds
from window_consumer.config.names import wrong_name
from window_consumer.config.options import about
from window_consumer.config.problems import Problem
from window_consumer.config.sections.worker import OwnTopics
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.model.produce import CANCEL_SUFFIX
from window_consumer.plan.built_in_workers import DELAY
from window_consumer.plan.ladder_topics import LadderNames

WORKER: Final = DELAY
"""The name of the built-in worker, as in ``dlq -w delay``."""

HANDLER: Final = "window_consumer.delay"
"""The name of its handler, which no function of an application can have."""

_DAY_S: Final = 86_400.0
_LEVELS: Final = (5, 10, 30, 60, 120, 300, 600, 1200, 1800, 2700, 3600, 7200)
_SLOTS: Final = 4
"""A call only decides where its record goes, and threads share one interpreter."""


def _wrong_target(text: str) -> str | None:
    if text.count("*") > 1 or "*" in text[:-1]:
        return "has a * that is not its last character"
    return wrong_name(text.removesuffix("*") or "x")


@frozen(kw_only=True)
class DelayConfig:
    """The delay service."""

    to: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "The topics to which it may deliver; a trailing * matches any ending. Without this"
            " list, anyone who may write to the service's topic could write anywhere.",
            kind=kinds.list_of(
                kinds.text("a topic's name, or its beginning and a *", _wrong_target),
                "names of topics",
            ),
            default="none: required in a section delay",
        ),
    )
    levels: tuple[float, ...] = field(
        default=tuple(map(float, _LEVELS)),
        metadata=about(
            "The delays of the topics in which records wait, shortest first. All members of a"
            " group must have the same delays.",
            kind=kinds.list_of(kinds.duration(1.0, 365 * _DAY_S), "durations"),
            reason="two days take about 30 hops, and a record waits in memory only for its last 5s",
        ),
    )
    precision: Literal["exact", "level"] = field(
        default="exact",
        metadata=about(
            "exact: a record passes through levels, each time the longest one that ends in time,"
            " and is delivered when it is due. level: it waits once, in the shortest level that"
            " is long enough, so 17s become 30s.",
            kind=kinds.choice("exact", "level"),
            reason="what senders expect; level costs a single hop",
        ),
    )
    store: Literal["levels", "wheel"] = field(
        default="levels",
        metadata=about(
            "Where records due within two hours wait. levels: in topics. wheel: in files, one for"
            " each second; only with precision: exact. Longer delays pass through levels first.",
            kind=kinds.choice("levels", "wheel"),
            reason="needs no disk; a wheel suits many odd delays",
        ),
    )
    delivery: Literal["at_least_once", "exactly_once"] = field(
        default="at_least_once",
        metadata=about(
            "at_least_once: a crash may deliver records twice. exactly_once: readers of committed "
            "records see each once, see exactly-once.md.",
            kind=kinds.choice("at_least_once", "exactly_once"),
            reason="transactions delay a delivery by up to 100 ms, and need stable host names",
        ),
    )
    directory: str | None = field(
        default=None,
        metadata=about(
            "The directory for the wheel's files. They are a cache of the topic: lost files are"
            " read from Kafka again. A relative path starts at the configuration file's"
            " directory.",
            kind=kinds.text("a directory"),
            default="none: required with store: wheel",
        ),
    )
    max: float = field(
        default=30 * _DAY_S,
        metadata=about(
            "The longest delay. Records that are due later become dead letters.",
            kind=kinds.duration(1.0, 3650 * _DAY_S),
            reason="longer than most reminders; a record with a wrong unit should not wait for"
            " years",
        ),
    )
    partitions: int = field(
        default=12,
        metadata=about(
            "The number of partitions of the topic when it is created. Its levels get as many.",
            kind=kinds.whole_number(1, 10_000),
            reason="suits up to twelve processes",
        ),
    )
    topic: str = field(
        default="wc.delay",
        metadata=about(
            "The topic that senders write to. The names of its levels and of its dead-letter "
            "topic begin with it, so each team can have its own.",
            kind=kinds.kafka_name("topic"),
            reason="what senders in all languages can rely on",
        ),
    )
    group: str | None = field(
        default=None,
        metadata=about(
            "The consumer group.", kind=kinds.kafka_name("group"), default="the topic's name"
        ),
    )
    run: bool = field(
        default=True,
        metadata=about(
            "Whether `window-consumer run` also runs the service. `delay run` runs it alone.",
            kind=kinds.boolean(),
            reason="a separate service is needed only for many messages",
        ),
    )

    @property
    def cancel_topic(self) -> str:
        """The topic of cancellations."""
        return self.topic + CANCEL_SUFFIX

    @property
    def worker(self) -> WorkerConfig:
        """The worker that delivers records."""
        return WorkerConfig(
            name=WORKER,
            enabled=self.run,
            handler=HANDLER,
            topics=(self.topic,),
            own_topics=OwnTopics(
                f"{self.topic}.{{delay}}", f"{self.topic}.dlq", self.partitions, self.to
            ),
            group=self.group or self.topic,
            concurrency=_SLOTS,
            delivery=DeliveryMode(self.delivery),
            retry=RetryConfig(levels=self.levels, on_failure="overtake"),
            # A failure says nothing about records for other targets.
            breaker=BreakerConfig(enabled=False),
        )


def conflicts(section: DelayConfig, given: Collection[str]) -> Iterator[Problem]:
    """Yield problems between keys that are each valid alone."""
    if given and not section.to:
        yield Problem(("to",), "is missing: list the topics to which it may deliver")
    for index, (before, level) in enumerate(pairwise(section.levels), start=1):
        if level <= before:
            delay, after = format_duration(level), format_duration(before)
            message = f"{delay} comes after {after}: write the shortest first"
            yield Problem(("levels", index), message)
    if section.store == "wheel" and section.precision == "level":
        message = "needs store: levels; a wheel delivers each record when it is due"
        yield Problem(("precision",), message)
    if section.store == "wheel" and section.delivery == "exactly_once":
        message = "is exactly_once, which needs store: levels, because files are in no transaction"
        yield Problem(("delivery",), message)
    if section.store == "wheel" and section.directory is None:
        message = "is missing: the wheel's files, as in directory: /var/cache/shop/delay"
        yield Problem(("directory",), message)
    ours = LadderNames((section.topic,), frozenset())
    for index, target in enumerate(section.to):
        if target in ours:
            message = (
                f"{target} is, or is named like, a retry, dead-letter or delay topic, and delayed"
                " records cannot go there: name topics that consumers read"
            )
            yield Problem(("to", index), message)
    endings = [*map(format_duration, section.levels), CANCEL_SUFFIX[1:]]
    for wrong in filter(None, (wrong_name(f"{section.topic}.{each}") for each in endings)):
        yield Problem(("topic",), f"the topic of a level {wrong}: choose a shorter name")
        break


def workers(section: DelayConfig) -> Iterator[WorkerConfig]:
    """Yield the worker, if there is one."""
    if section.to:
        yield section.worker
