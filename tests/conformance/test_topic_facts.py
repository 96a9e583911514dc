"""What a Source says of topics."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.conftest import Full
from tests.conformance.reader import Reader
from tests.conformance.stages import DEADLINE_S, Stage

ReaderOn = Callable[[Stage], Reader]


def test_partitions_and_ids_are_reported_and_missing_topics_are_left_out(
    stage: Stage, reader_on: ReaderOn
) -> None:
    first, second = stage.topic(3), stage.topic(1)
    source = reader_on(stage).source
    facts = source.facts([first, second, stage.unique_name("nowhere")], DEADLINE_S)
    assert {name: each.partitions for name, each in facts.items()} == {first: 3, second: 1}
    ids = {each.topic_id for each in facts.values()}
    assert len(ids) == 2
    assert None not in ids
    assert source.facts([first], DEADLINE_S) == {first: facts[first]}
    assert source.facts([], DEADLINE_S) == {}


def test_a_topic_made_anew_has_another_id(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic(1)
    source = reader_on(stage).source
    before = source.facts([topic], DEADLINE_S)[topic]
    stage.remake(topic, 2)
    after = source.facts([topic], DEADLINE_S)[topic]
    assert (before.partitions, after.partitions) == (1, 2)
    assert before.topic_id != after.topic_id


def test_added_partitions_keep_the_id(full: Full, reader_on: ReaderOn) -> None:
    topic = full.topic(1)
    reader = reader_on(full)
    before = reader.source.facts([topic], DEADLINE_S)[topic]
    full.add_partitions(topic, 4)
    after = reader.source.facts([topic], DEADLINE_S)[topic]
    assert (after.partitions, after.topic_id) == (4, before.topic_id)


def test_a_deleted_topic_is_left_out(full: Full, reader_on: ReaderOn) -> None:
    topic = full.topic(1)
    reader = reader_on(full)
    assert topic in reader.source.facts([topic], DEADLINE_S)
    full.delete(topic)
    assert reader.source.facts([topic], DEADLINE_S) == {}
