"""A query of the trace, as conditions on events in SQL and in Python."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from attrs import fields, frozen

from window_consumer.config.units import UnitError, parse_duration
from window_consumer.model.conditions.values import moment_ms
from window_consumer.trace.event import Step, TraceEvent


@frozen(kw_only=True)
class TraceQuery:
    """The search criteria; None matches everything. Times are in microseconds since 1970."""

    root: str | None = None
    """The id of the record that started the journey."""
    record: str | None = None
    """A record's id."""
    key: str | None = None
    """A key in the trace's form."""
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    since_us: int | None = None
    until_us: int | None = None
    tag: str | None = None
    group: str | None = None
    step: str | None = None
    status: str | None = None
    error: str | None = None
    """A fingerprint."""
    cluster: str | None = None
    """The `bootstrap.servers` of the cluster, as in the events."""

    @classmethod
    def of_texts(cls, texts: Mapping[str, str], now_us: int) -> Self:
        """Read the form of the page; empty texts do not count.

        The names are those of the options of ``trace search``; the key is not in the trace's form
        yet. Raises ValueError with the problem.
        """
        given = {name: text for name, text in texts.items() if text}
        unknown = given.keys() - _NAMES
        if unknown:
            raise ValueError(
                f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(_NAMES)}"
            )
        asked: dict[str, Any] = {name: given[name] for name in _TEXTS if name in given}
        if "step" in asked and asked["step"] not in set(Step):
            raise ValueError(f"step is one of {', '.join(Step)}")
        asked |= place_in(given["at"]) if "at" in given else {}
        if "since" in given:
            if "from" in given:
                raise ValueError("since and from are mutually exclusive")
            asked["since_us"] = now_us - _duration_us(given["since"])
        for name, field in (("from", "since_us"), ("to", "until_us")):
            if name in given:
                asked[field] = _time_us(name, given[name])
        if asked.get("until_us", 1 << 62) <= asked.get("since_us", 0):
            raise ValueError("to must be after the beginning: no step can match")
        return cls(**asked)

    def conditions(self) -> tuple[str, list[Any]]:
        """Return the conditions as SQL, with its parameters."""
        parts: list[str] = []
        values: list[Any] = []
        for each in fields(TraceQuery):
            value = getattr(self, each.name)
            if value is not None:
                condition = _CONDITIONS.get(each.name, f'"{each.name}" = ?')
                parts.append(condition)
                values += [value] * condition.count("?")
        return " AND ".join(parts) or "true", values

    def fits(self, event: TraceEvent) -> bool:
        """Return whether an event fulfils the same conditions as in SQL."""
        if self.topic is not None and self.topic not in {event.topic, event.orig_topic}:
            return False
        if self.since_us is not None and event.time_us < self.since_us:
            return False
        if self.until_us is not None and event.time_us >= self.until_us:
            return False
        if self.tag is not None and self.tag not in (event.tags or "").split(","):
            return False
        return all(
            getattr(self, name) is None or getattr(self, name) == getattr(event, field)
            for name, field in _EQUAL.items()
        )


_PLACE: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)(/(?P<partition>\d+)(/(?P<offset>\d+))?)?")
_TEXTS: Final = ("key", "tag", "group", "step", "status", "error", "cluster")
_NAMES: Final = (*_TEXTS, "at", "since", "from", "to")


def place_in(text: str) -> dict[str, Any]:
    """Return topic, partition and offset in a text such as orders, orders/0 or orders/0/17.

    Raises ValueError.
    """
    match = _PLACE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text}: write orders, orders/0 or orders/0/17")
    return {
        name: value if name == "topic" else int(value)
        for name, value in match.groupdict().items()
        if value is not None
    }


def _duration_us(text: str) -> int:
    try:
        return round(parse_duration(text) * 1e6)
    except UnitError as error:
        raise ValueError(f"since: {text!r} {error}") from None


def _time_us(name: str, text: str) -> int:
    moment = moment_ms(text)
    if moment is None:
        raise ValueError(f"{name}: {text!r} is not a time: write it as 2026-01-31T12:00 (UTC)")
    return moment * 1000


_CONDITIONS: Final = {
    "root": "root_id = ?",
    "record": "record_id = ?",
    "topic": "(topic = ? OR orig_topic = ?)",
    "since_us": "time_us >= ?",
    "until_us": "time_us < ?",
    "tag": "list_contains(string_split(tags, ','), ?)",
    "group": '"group" = ?',
    "error": "error_fingerprint = ?",
}
_EQUAL: Final = {
    "root": "root_id",
    "record": "record_id",
    "error": "error_fingerprint",
    **{name: name for name in ("key", "partition", "offset", "group", "step", "status", "cluster")},
}
