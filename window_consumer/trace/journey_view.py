"""Journeys for the web page: plain values, with masked fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from window_consumer.config.sections.mask import MaskRules
from window_consumer.model.redaction import Mask
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import load_pipeline
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.journey import Journey, JourneyBranch, JourneyHop, Passage, Place, Stop
from window_consumer.trace.lookup import Journeys, TraceAnswer
from window_consumer.trace.query import TraceQuery

MOST_FOUND: Final = 2_000
"""The most steps to search; the page lists their records."""


class JourneyPages:
    """Answers the page's queries. Owner: one thread at a time.

    Raises WindowConsumerError with the problem of the table or the query.
    """

    def __init__(self, plan: PipelinePlan, rules: MaskRules):
        self._plan = plan
        self._rules = rules
        self._journeys: Journeys | None = None

    @classmethod
    def of_config(cls, file: Path, rules: MaskRules) -> JourneyPages:
        """Read the pipeline's configuration; raise ConfigError."""
        return cls(load_pipeline(file), rules)

    def journey(self, record: str) -> dict[str, Any]:
        """Return a record's journey: ``passages`` (empty if it is unknown) and ``notes``."""
        return self._masked(lambda journeys: self._as_json(journeys.of(record)))

    def search(self, question: TraceQuery) -> dict[str, Any]:
        """Return ``records`` with matching steps, the latest first, and ``notes``.

        The key in the query is the producer's own.
        """

        def find(journeys: Journeys) -> dict[str, Any]:
            key = None if question.key is None else journeys.key(question.key)
            answer = journeys.find(evolve(question, key=key), MOST_FOUND)
            latest: dict[str, TraceEvent] = {}
            for event in answer.events:
                if event.record_id is not None:
                    latest.pop(event.record_id, None)
                    latest[event.record_id] = event
            records = [_found(name, last) for name, last in reversed(latest.items())]
            return {"records": records, "notes": list(answer.notes)}

        return self._masked(find)

    def _masked(self, ask: Callable[[Journeys], dict[str, Any]]) -> dict[str, Any]:
        if self._journeys is None:
            self._journeys = Journeys(self._plan)
        else:
            self._journeys.refresh()
        mask = Mask(self._plan.secrets)
        found = ask(self._journeys)
        return {**found, "notes": [mask(note) for note in found["notes"]]}

    def _as_json(self, answer: TraceAnswer) -> dict[str, Any]:
        journey = Journey.of(answer.events)
        if journey is None:
            return {"passages": [], "notes": list(answer.notes)}
        return {
            "began_us": journey.began_us,
            "lasted_us": journey.lasted_us,
            "steps": len(answer.events),
            "has_skew": journey.has_skew,
            "passages": [self._passage(each) for each in journey.passages],
            "notes": list(answer.notes),
        }

    def _passage(self, passage: Passage) -> dict[str, Any]:
        topics = [passage.place[0], *(hop.place[0] for way in passage.ways for hop in way.hops)]
        key = None if passage.key is None else passage.key.encode()
        shown = self._rules.loggable_key(topics, key)
        return {
            "record": passage.record_id,
            "key": shown.decode() if isinstance(shown, bytes) else shown,
            "tags": passage.tags,
            "place": _place(passage.place),
            "sent": [_stop(stop) for stop in passage.sent],
            "ways": [_way(way) for way in passage.ways],
        }


def _found(record: str, last: TraceEvent) -> dict[str, Any]:
    """Return a record with the latest of its matching steps."""
    return {
        "record": record,
        "time_us": last.time_us,
        "step": last.step,
        "status": last.status,
        "topic": last.topic,
        "group": last.group,
        "tags": last.tags,
        "error": last.error_class,
        "fingerprint": last.error_fingerprint,
    }


def _way(way: JourneyBranch) -> dict[str, Any]:
    events = [stop.event for hop in way.hops for stop in hop.stops]
    return {
        "group": way.group,
        "handlers": _distinct(event.handler for event in events),
        "apps": _distinct(event.app for event in events),
        "end": way.end,
        "went_wrong": way.went_wrong,
        "attempts": way.attempts,
        "redrives": way.redrives,
        "replays": way.replays,
        "hops": [_hop(hop) for hop in way.hops],
    }


def _hop(hop: JourneyHop) -> dict[str, Any]:
    return {"place": _place(hop.place), "stops": [_stop(stop) for stop in hop.stops]}


def _stop(stop: Stop) -> dict[str, Any]:
    event = stop.event
    return {
        "after_us": stop.after_us,
        "is_early": stop.is_early,
        "time_us": event.time_us,
        "step": event.step,
        "status": event.status,
        "attempt": event.attempt,
        "duration_us": event.duration_us,
        "host": event.host,
        "client": event.client_id,
        "cluster": event.cluster,
        "error": event.error_class,
        "fingerprint": event.error_fingerprint,
    }


def _place(place: Place) -> str:
    topic, partition, offset = place
    named = topic if partition is None else f"{topic}[{partition}]"
    return named if offset is None else f"{named}@{offset}"


def _distinct(texts: Iterable[str | None]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
