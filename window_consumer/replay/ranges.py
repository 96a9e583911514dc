"""Which offsets a replay copies: pure planning from the user's selection and the log's contents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from attrs import define, field, frozen

from window_consumer.model.errors import UsageError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition
from window_consumer.model.record_identity import given_id, id_text

_PLACE: Final = re.compile(r"(.+)/([0-9]{1,9})/([0-9]{1,18})")


@frozen
class Selection:
    """The user's selection; exactly one of ``from_ms``, ``offsets`` and ``ids`` is set."""

    from_ms: int | None = None
    to_ms: int | None = None
    """Exclusive, like ``from_ms`` in milliseconds since 1970; None is the present end."""
    offsets: Mapping[int, int] = field(factory=dict)
    """The first offset of each wanted partition."""
    ids: frozenset[str] = frozenset()


@frozen
class ReplayRange:
    """The offsets of one partition to copy, and those that retention has deleted."""

    span: Span
    deleted: Span | None = None


Ranges = Mapping[TopicPartition, ReplayRange]


def planned(
    selection: Selection,
    topic: str,
    logs: Mapping[TopicPartition, Span],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    ids: WantedIds,
) -> Ranges:
    """Return the range of each wanted partition of a topic.

    ``begins`` and ``ends`` are the first offsets at or after the two times, if given; ``ids`` are
    those of the selection. Raises UsageError for a partition that the topic does not have.
    """
    if selection.offsets:
        firsts = _by_offset(selection, topic, logs)
    elif selection.ids:
        firsts = ids.spans(logs)
    else:
        firsts = {name: Span(begins[name], log.end) for name, log in logs.items()}
    found = {}
    for name, wanted in firsts.items():
        log = logs[name]
        end = min(wanted.end, ends.get(name, log.end))
        first = max(wanted.first, log.first)
        lost = Span(wanted.first, min(log.first, end))
        if selection.from_ms is not None:
            # The times of deleted records are unknown: they may have been in the range.
            lost = Span(0, log.first if first == log.first else 0)
        found[name] = ReplayRange(Span(first, max(first, end)), lost if lost.count else None)
    return found


def _by_offset(
    selection: Selection, topic: str, logs: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, Span]:
    found = {}
    for partition, offset in selection.offsets.items():
        log = logs.get(name := TopicPartition(topic, partition))
        if log is None:
            raise UsageError(
                f"--from-offset {partition}:{offset}: {topic} has no partition {partition}, only 0"
                f" to {len(logs) - 1}"
            )
        found[name] = Span(offset, log.end)
    return found


@define
class WantedIds:
    """Records of one topic by their ids: ``topic/partition/offset``, or the value of ``wc-id``."""

    _ids: frozenset[str]
    _topic: str
    _siblings: frozenset[str] = frozenset()
    """Other topics that are searched: an id that names one of them is searched for only there."""
    found: set[str] = field(factory=set)
    """The ids that were seen; topics that are searched together share this set."""
    _places: dict[tuple[int, int], str] = field(init=False)
    _others: frozenset[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._places, others = {}, set()
        for each in self._ids:
            match = _PLACE.fullmatch(each)
            if match is not None and match[1] == self._topic:
                self._places[int(match[2]), int(match[3])] = each
            elif match is None or match[1] not in self._siblings:
                others.add(each)
        self._others = frozenset(others)

    def missing(self) -> list[str]:
        """Return the ids that may be in the topic and were not seen anywhere; sorted."""
        return sorted(self._others.union(self._places.values()) - self.found)

    def spans(self, logs: Mapping[TopicPartition, Span]) -> dict[TopicPartition, Span]:
        """Return where to search: from the first to the last place, or everywhere for other ids."""
        if self._others:
            return dict(logs)
        by_partition: dict[int, list[int]] = {}
        for partition, offset in self._places:
            by_partition.setdefault(partition, []).append(offset)
        return {
            name: Span(max(log.first, min(offsets)), min(log.end, max(offsets) + 1))
            for name, log in logs.items()
            if (offsets := by_partition.get(name.partition))
        }

    def __contains__(self, message: Message) -> bool:
        """Return whether a record of the topic is wanted; remember that it was seen."""
        known = self._places.get((message.partition(), message.offset()))
        if known is None and self._others:
            given = given_id(message.headers())
            text = None if given is None else id_text(given)
            known = text if text in self._others else None
        if known is None:
            return False
        self.found.add(known)
        return True


@frozen
class RunMark:
    """A replay's entry in a commit of its progress: from it the replay continues its range."""

    topic_id: str
    run: str
    span: Span
    is_over: bool | None = False
    """A process has seen that everything was copied: the next replay of the same name starts over.
    None (an earlier version's mark) means that it is over at the end of its span."""

    def __str__(self) -> str:
        version = _OVER if self.is_over else _VERSION
        return f"{version}.{self.topic_id}.{self.run}.{self.span.first}.{self.span.end}"

    @classmethod
    def parse(cls, text: str | None) -> RunMark | None:
        """Return the mark that a commit carries; None for other metadata."""
        parts = (text or "").split(".")
        is_ours = len(parts) == _PARTS and parts[0] in _SAYS_OVER
        if not is_ours or not (parts[3] + parts[4]).isdigit():
            return None
        span = Span(int(parts[3]), int(parts[4]))
        return cls(parts[1], parts[2], span, _SAYS_OVER[parts[0]])

    def ends_at(self, offset: int) -> bool:
        """Return whether the run is over in a partition with this committed offset."""
        return offset >= self.span.end if self.is_over is None else self.is_over


_VERSION: Final = "wcp2"
_OVER: Final = "wcp2-over"
_SAYS_OVER: Final = {"wcp1": None, _VERSION: False, _OVER: True}
_PARTS: Final = 5


@frozen
class LastRun:
    """The latest run over a topic, according to commits."""

    name: str
    left: Mapping[TopicPartition, Span]
    """The offsets that it has not copied yet, by partition."""
    is_over: bool
    """A process has seen that everything was copied. Until then its last batch may be
    unreported."""


def last_run(
    commits: Iterable[tuple[TopicPartition, int, RunMark | None]], topic_id: str
) -> LastRun | None:
    """Return the latest run; a run over an earlier topic of the same name does not count."""
    marked = [
        (name, offset, mark)
        for name, offset, mark in commits
        if mark is not None and mark.topic_id == topic_id
    ]
    if not marked:
        return None
    run = max(mark.run for _, _, mark in marked)
    latest = [each for each in marked if each[2].run == run]
    left = {name: Span(offset, mark.span.end) for name, offset, mark in latest}
    return LastRun(run, left, all(mark.ends_at(offset) for _, offset, mark in latest))


def remaining(last: LastRun, logs: Mapping[TopicPartition, Span]) -> Ranges:
    """Return the rest of an interrupted run, and what has been deleted of it since."""
    return {name: _after(span, logs[name]) for name, span in last.left.items() if name in logs}


def _after(left: Span, log: Span) -> ReplayRange:
    first = max(left.first, log.first)
    lost = Span(left.first, min(first, left.end))
    return ReplayRange(Span(min(first, left.end), left.end), lost if lost.count else None)
