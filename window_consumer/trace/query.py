"""A query of the trace, as conditions on events in SQL and in Python."""

from __future__ import annotations

from typing import Any, Final

from attrs import fields, frozen

from window_consumer.trace.event import TraceEvent


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
    """The `bootstrap.servers` of the cluster, as the events' writers have it."""

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
