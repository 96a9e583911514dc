"""The history of records: from the table of events, and from Kafka for the latest events."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from window_consumer.kafka.client_log import ClientLog
from window_consumer.model.errors import UsageError
from window_consumer.model.key_forms import CODE, key_form
from window_consumer.model.redaction import Mask
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import optional_module
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.event_batch import may_have
from window_consumer.trace.event_tail import EventTail, TailEnd
from window_consumer.trace.query import TraceQuery
from window_consumer.trace.spark.config import TraceSection

if TYPE_CHECKING:
    from window_consumer.trace.spark.search import Index

_QUIET: Final = logging.getLogger("window_consumer.journeys")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False  # the answer's notes report problems

_AWAY_S: Final = 10.0
"""If Kafka did not answer, it is not asked again for this long: each try takes seconds."""

_PLACE: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})"
)


@frozen
class TraceAnswer:
    """The steps found, ordered by time, and notes about the answer."""

    events: tuple[TraceEvent, ...]
    notes: tuple[str, ...] = ()


class Journeys:
    """Answers queries about the trace. Owner: one thread at a time.

    Raises UsageError if the table, or the library that reads it (the extra ``spark``), is missing.
    """

    def __init__(
        self,
        plan: PipelinePlan,
        *,
        indexed_only: bool = False,
        make_tail: Callable[[str, Mapping[str, Any], ClientLog], EventTail] = EventTail,
        away_s: float = _AWAY_S,
    ):
        """``indexed_only`` skips Kafka.

        ``make_tail`` creates the reader of the topic's end; after a failure it rests for
        ``away_s``.
        """
        self._make_tail = make_tail
        self._away_s = away_s
        search = optional_module("window_consumer.trace.spark.search")
        self._plan = plan
        self.path = plan.table("trace")
        self._index: Index = search.Index(self.path)
        self._most_steps: int = search.MOST_STEPS
        self._in_order: Callable[..., list[TraceEvent]] = search.in_order
        self._checkpoint = partial(plan.checkpoint, "trace")
        self._indexed_only = indexed_only
        self._away: tuple[float, TailEnd] | None = None

    def refresh(self) -> None:
        """Reload the table; until then queries see its earlier state."""
        self._index.refresh()

    def of(self, record: str, cluster: str | None = None) -> TraceAnswer:
        """Return all steps of a record and of the records that it caused.

        ``record`` is its ``wc-id``, or the position of its first delivery:
        ``topic/partition/offset``.
        """
        answer = self._at_id_or_place(record, cluster)
        clusters = sorted({event.cluster for event in answer.events if event.cluster is not None})
        if len(clusters) <= 1:
            return answer
        note = (
            f"writers of these steps name their clusters {' and '.join(clusters)}: if these are"
            " different clusters, choose one with --cluster"
        )
        return TraceAnswer(answer.events, (*answer.notes, note))

    def _at_id_or_place(self, record: str, cluster: str | None) -> TraceAnswer:
        answer = self._of_id(record, cluster)
        place = _PLACE.fullmatch(record)
        if answer.events or place is None:
            return answer
        # The record at that position may have its own id.
        there = TraceQuery(
            topic=place["topic"],
            partition=int(place["partition"]),
            offset=int(place["offset"]),
            cluster=cluster,
        )
        found = self.find(there, self._most_steps).events
        names = {event.record_id: None for event in found if event.topic == place["topic"]}
        answers = [self._of_id(name, cluster) for name in names if name is not None]
        if not answers:
            return answer
        events = self._in_order([event for each in answers for event in each.events])
        notes = dict.fromkeys(note for each in answers for note in each.notes)
        return TraceAnswer(tuple(events), tuple(notes))

    def _of_id(self, record: str, cluster: str | None) -> TraceAnswer:
        wanted = [
            TraceQuery(root=record, cluster=cluster),
            TraceQuery(record=record, cluster=cluster),
        ]
        place = _PLACE.fullmatch(record)

        def in_batch(data: bytes) -> bool:
            if may_have(data, [record]):
                return True
            return place is not None and may_have(data, [place["topic"]], int(place["offset"]))

        tail = self._tail(in_batch, lambda event: any(each.fits(event) for each in wanted))
        found = self._index.journey(record, cluster)
        events = self._in_order([*found, *tail.events])
        notes = list(tail.notes)
        if len(events) >= self._most_steps:
            notes.append(f"these are {len(events):,} steps; there may be more")
        return TraceAnswer(tuple(events), tuple(notes))

    def find(self, question: TraceQuery, most: int) -> TraceAnswer:
        """Return the latest ``most`` matching events."""
        named = ("record", "root", "key", "topic", "tag", "group", "step", "error", "cluster")
        texts = [text for name in named if (text := getattr(question, name)) is not None]
        tail = self._tail(lambda data: may_have(data, texts, question.offset), question.fits)
        found = self._index.find(question, most)
        return TraceAnswer(tuple(self._in_order([*found, *tail.events])[-most:]), tail.notes)

    def key(self, key: str) -> str:
        """Return a key in the trace's form; raise UsageError if the trace has no keys."""
        return form_of_key(key, self._plan)

    def count_of_key(self, form: str) -> int:
        """Return how many steps in the table have a key, which is in the trace's form."""
        return self._index.count(TraceQuery(key=form))

    def records_of_key(self, form: str) -> list[str]:
        """Return the ids of the records with a key, which is in the trace's form."""
        return self._index.records(TraceQuery(key=form))

    def _tail(
        self, in_batch: Callable[[bytes], bool], fits: Callable[[TraceEvent], bool]
    ) -> TailEnd:
        if self._indexed_only:
            return TailEnd()
        topic = self._plan.section(TraceSection).topic
        if self._away is not None and time.monotonic() < self._away[0]:
            return self._away[1]
        log = ClientLog(_QUIET, Mask(self._plan.secrets))
        since = self._index.read_up_to(self._checkpoint, topic)
        tail = self._make_tail(topic, self._plan.kafka, log).read(since, in_batch, fits)
        self._away = (time.monotonic() + self._away_s, tail) if tail.is_away else None
        return tail


def form_of_key(key: str, plan: PipelinePlan) -> str:
    """Return a key in the trace's form; raise UsageError if the trace has no keys."""
    trace = plan.section(TraceSection)
    if trace.keys == "off":
        raise UsageError("trace.keys is off: the trace has no keys to look for")
    if key.startswith(CODE):
        return key
    form = key_form(trace.keys, (trace.key_secret or "").encode())(key.encode())
    assert form is not None  # only a missing key has no form
    return form
