"""The section ``schedules``: one schedule by each name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, Literal

from attrs import field, frozen

from window_consumer.config import Config, kinds
from window_consumer.config.kinds import REFERENCE, ValueKind
from window_consumer.config.names import wrong_name
from window_consumer.config.options import Section, about
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.model import headers as names
from window_consumer.plan.built_in_workers import DELAY
from window_consumer.plan.ladder_topics import LadderNames
from window_consumer.schedules.cron import Cron, CronError, zone_of

NAME: Final = "schedules"

SERVICE: Final = DELAY
"""The worker beside which they run."""

Missed = Literal["last", "all", "none"]

_NO_SERVICE: Final = (
    "need the delay service, which sends them: add delay: with to: and its permitted target topics"
)


def _wrong_cron(text: str) -> str | None:
    try:
        Cron(text)
    except CronError as error:
        return str(error)
    return None


def _wrong_zone(text: str) -> str | None:
    try:
        zone_of(text)
    except CronError as error:
        return str(error)
    return None


def _any_text(expected: str) -> ValueKind:
    """Text in a record."""
    return kinds.text(expected, lambda _text: None)


def _headers_kind() -> ValueKind:
    """A mapping of header names to texts."""
    expected = "a mapping of header names to texts, such as {kind: nightly}"
    one = _any_text("text")

    def read(raw: Any) -> tuple[tuple[str, str], ...]:
        if not isinstance(raw, dict):
            raise InvalidError.of(raw, expected)
        found: list[tuple[str, str]] = []
        problems: list[Problem] = []
        for name, text in raw.items():
            if name.startswith(names.PREFIX):
                message = f"names that begin with {names.PREFIX} are reserved: choose another one"
                problems.append(Problem((name,), message))
                continue
            try:
                found.append((name, one.read(text)))
            except InvalidError as error:
                problems.extend(problem.below((name,)) for problem in error.problems)
        if problems:
            raise InvalidError(*problems)
        return tuple(found)

    text = {"anyOf": [{"type": "string"}, REFERENCE]}
    schema = {"type": "object", "additionalProperties": text}
    return ValueKind(
        "mapping of texts", expected, read, lambda value: json.dumps(dict(value)), schema
    )


@frozen(kw_only=True)
class ScheduleConfig:
    """One schedule."""

    cron: str = field(
        metadata=about(
            "When it ticks: minute, hour, day of the month, month, day of the week; a field for "
            "seconds may come first.",
            kind=kinds.text("a cron expression such as '0 2 * * *'", _wrong_cron),
            default="none: required",
        )
    )
    timezone: str = field(
        default="UTC",
        metadata=about(
            "The time zone of the expression.",
            kind=kinds.text("a time zone such as Europe/Berlin", _wrong_zone),
            reason="the same for all hosts, and no hour is skipped or repeated",
        ),
    )
    to: str = field(
        metadata=about(
            "The topic that gets a record at each tick. It need not be in `delay.to`.",
            kind=kinds.text(
                "a topic name of letters, digits, dots, dashes and underscores", wrong_name
            ),
            default="none: required",
        )
    )
    key: str | None = field(
        default=None,
        metadata=about(
            "The key of the records.", kind=_any_text("text, such as nightly"), default="none"
        ),
    )
    value: str | None = field(
        default=None,
        metadata=about(
            "Their value.",
            kind=_any_text('text, such as \'{"kind": "nightly"}\''),
            default="none: a tombstone",
        ),
    )
    headers: tuple[tuple[str, str], ...] = field(
        default=(), metadata=about("Their headers.", kind=_headers_kind())
    )
    missed: Missed = field(
        default="last",
        metadata=about(
            "Which ticks are sent when several are due at once, such as after an outage. last: the"
            " newest. all: each. none: the newest, if it is at most 1m late.",
            kind=kinds.choice("last", "all", "none"),
            reason="a job that missed several times runs once",
        ),
    )


def _relations(config: Config) -> Iterator[Problem]:
    """Yield conflicts with the rest of the file."""
    schedules = config.named(ScheduleConfig)
    service = config.workers.get(SERVICE)
    if schedules and (service is None or service.own_topics is None):
        yield Problem((), _NO_SERVICE)
    ladders = LadderNames.of(config)
    for name, schedule in schedules.items():
        if schedule.to in ladders:
            message = f"{schedule.to} is a retry, dead-letter or delay topic, or named like one:"
            yield Problem((name, "to"), f"{message} choose another topic")


def topic_of(config: Config) -> str | None:
    """Return the topic that keeps the last ticks; None without schedules."""
    service = config.workers.get(SERVICE)
    if service is None or not config.named(ScheduleConfig):
        return None
    return f"{service.topics[0]}.{NAME}"


SECTION: Final = Section(
    NAME,
    ScheduleConfig,
    "Records that the delay service sends at the times of cron expressions, by name.",
    has_names=True,
    relations=_relations,
    part_of=SERVICE,
)
