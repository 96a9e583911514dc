"""What is asked of Kafka beside the table, and how often."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.golden_texts import Golden
from tests.model.test_journey import story
from tests.pipeline.test_search import write
from window_consumer.spark.wire import load_pipeline
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.event_tail import EventTail, TailEnd
from window_consumer.trace.lookup import Journeys

asked: list[Mapping[int, int] | None] = []


class CountedTail(EventTail):
    """Notes from where it was asked."""

    def read(
        self,
        since: Mapping[int, int] | None,
        may_have: Callable[[bytes], bool],
        fits: Callable[[TraceEvent], bool],
    ) -> TailEnd:
        """Note it, and read."""
        asked.append(since)
        return super().read(since, may_have, fits)


@pytest.fixture
def journeys(tmp_path: Path) -> Callable[[float], Journeys]:
    """A table with a story, beside a Kafka that is away."""
    asked.clear()
    write(tmp_path / "tables" / "trace", story())
    text = {"kafka": {"bootstrap.servers": "127.0.0.1:1"}, "directory": "."}
    (tmp_path / "pipeline.yaml").write_text(json.dumps(text))
    plan = load_pipeline(tmp_path / "pipeline.yaml")
    make_tail = partial(CountedTail, answer_s=0.2)
    return lambda away_s: Journeys(plan, make_tail=make_tail, away_s=away_s)


def test_a_kafka_that_is_away_is_not_asked_each_time_and_each_answer_says_so(
    journeys: Callable[[float], Journeys], golden: Golden
) -> None:
    made = journeys(600.0)
    for record in ("orders/0/17", "nobody", "orders/0/17"):
        (note,) = made.of(record).notes
        golden(note)
    assert len(asked) == 1
    assert len(made.of("orders/0/17").events) == len(story())


def test_after_a_while_it_is_asked_again(journeys: Callable[[float], Journeys]) -> None:
    made = journeys(0.0)
    for _ in range(2):
        made.of("nobody")
    assert len(asked) == 2
