"""What a Source delivers, and where it stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.conftest import Full
from tests.conformance.reader import Reader
from tests.conformance.stages import DEADLINE_S, Stage
from window_consumer.model.errors import RunError
from window_consumer.model.headers import LostHeaders
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

ReaderOn = Callable[[Stage], Reader]


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# ---- records


def test_every_record_comes_once_and_in_offset_order(stage: Stage, reader_on: ReaderOn) -> None:
    topics = [stage.topic(2), stage.topic(1)]
    names = [TopicPartition(topics[0], 0), TopicPartition(topics[0], 1)]
    names.append(TopicPartition(topics[1], 0))
    for name in names:
        stage.write(name.topic, *numbered(0, 1_200), partition=name.partition)
    reader = reader_on(stage).join(*topics)
    for name in names:
        reader.read(name, 1_200)
    for name in names:
        assert reader.offsets(name) == list(range(1_200))
        assert [m.value() for m in reader.records[name]] == numbered(0, 1_200)
        assert {(m.topic(), m.partition()) for m in reader.records[name]} == {name}


def test_a_poll_returns_a_partition_once_and_no_more_than_was_asked_for(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic(2)
    for partition in (0, 1):
        stage.write(topic, *numbered(0, 8_000), partition=partition)
    reader = reader_on(stage).join(topic)

    def all_read() -> bool:
        batches = reader.turn(max_records=4_500)
        counts = [len(batch.messages) for batch in batches]
        assert len({batch.name for batch in batches}) == len(batches)
        assert 0 not in counts
        assert sum(counts) <= 4_500
        return sum(map(len, reader.records.values())) == 16_000

    reader.until(all_read)


def test_a_poll_for_no_record_brings_one_at_most(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic()
    stage.write(topic, *numbered(0, 100))
    reader = reader_on(stage).join(topic)
    name = TopicPartition(topic, 0)

    def ten_read() -> bool:
        assert sum(len(batch.messages) for batch in reader.turn(max_records=0)) <= 1
        return len(reader.offsets(name)) >= 10

    reader.until(ten_read)
    assert reader.read(name, 100) == list(range(100))


def test_a_record_is_what_was_written_byte_for_byte(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic()
    headers = [("trace", b"1"), ("trace", b"\x00\xff"), ("none", None), ("\u00fcber", b"")]
    stage.write(topic, b"\x00\xff", key=b"\xfe", headers=headers)
    stage.write(topic, None, b"", key=b"")
    stage.write(topic, b"x" * 900_000)
    reader = reader_on(stage).join(topic)
    name = TopicPartition(topic, 0)
    reader.read(name, 4)
    plain, tombstone, empty, large = reader.records[name]
    assert (plain.key(), plain.value(), plain.headers()) == (b"\xfe", b"\x00\xff", headers)
    assert (tombstone.key(), tombstone.value(), len(tombstone)) == (b"", None, 0)
    assert (empty.value(), len(empty), empty.headers()) == (b"", 0, None)
    assert (large.key(), len(large)) == (None, 900_000)
    kind, milliseconds = plain.timestamp()
    assert kind == 1
    assert milliseconds > 0


def test_a_record_whose_headers_nobody_can_read_is_reported(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic()
    stage.write(topic, b"before", headers=[("a", b"1")])
    stage.write_unreadable(topic, b"broken")
    stage.write_unreadable(topic, b"broken, too")
    stage.write(topic, b"behind")
    reader = reader_on(stage).join(topic)
    name = TopicPartition(topic, 0)
    reader.read(name, 4)
    before, *broken, behind = reader.records[name]
    assert reader.unreadable[name] == [1, 2]
    for _ in range(2):
        assert [m.headers() for m in broken] == [[("wc-headers-lost", b"1")]] * 2
    assert [m.value() for m in broken] == [b"broken", b"broken, too"]
    assert (before.headers(), behind.headers()) == ([("a", b"1")], None)
    assert [type(m.headers()) is LostHeaders for m in stage.read(topic)] == [
        False,
        True,
        True,
        False,
    ]


def test_reading_begins_where_it_is_set_to(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic(2)
    for partition in (0, 1):
        stage.write(topic, *numbered(0, 10), partition=partition)
    reader = reader_on(stage)
    reader.begin = lambda names: {name: 7 + name.partition for name in names}
    reader.join(topic)
    assert reader.read(TopicPartition(topic, 0), 3) == [7, 8, 9]
    assert reader.read(TopicPartition(topic, 1), 2) == [8, 9]


def test_a_partition_without_an_offset_waits_for_a_seek(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic(2)
    waiting, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    stage.write(topic, *numbered(0, 10), partition=0)
    reader = reader_on(stage)
    reader.begin = lambda names: {name: None if name == waiting else 0 for name in names}
    reader.join(topic)
    stage.write(topic, *numbered(0, 10), partition=1)
    reader.read(other, 10)
    assert reader.offsets(waiting) == []
    reader.source.seek(waiting, 4)
    assert reader.read(waiting, 6) == [4, 5, 6, 7, 8, 9]


def test_a_partition_that_waits_is_not_out_of_range(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic(2)
    waiting, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    stage.write(topic, *numbered(0, 10), partition=0)
    stage.delete_before(waiting, 5)
    reader = reader_on(stage)
    reader.begin = lambda names: {name: None if name == waiting else 0 for name in names}
    reader.join(topic)
    stage.write(topic, *numbered(0, 10), partition=1)
    reader.read(other, 10)
    reader.source.seek(waiting, 5)
    assert reader.read(waiting, 5) == [5, 6, 7, 8, 9]
    assert not reader.out_of_range
    assert not reader.errors


# ---- pause and seek


def test_a_paused_partition_delivers_nothing_until_a_seek(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic(2)
    paused, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    stage.write(topic, *numbered(0, 2_000))
    reader = reader_on(stage).join(topic)
    reader.until(lambda: reader.offsets(paused))
    reader.source.pause([paused])
    seen = reader.offsets(paused)
    stage.write(topic, *numbered(0, 100), partition=1)
    reader.read(other, 100)
    assert reader.offsets(paused) == seen
    reader.source.seek(paused, len(seen))
    assert reader.read(paused, 2_000) == list(range(2_000))


def test_a_seek_goes_back_and_forward_and_drops_what_was_fetched(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    stage.write(topic, *numbered(0, 1_000))
    reader = reader_on(stage).join(topic)
    reader.until(lambda: reader.offsets(name))
    for target in (900, 3, 500):
        reader.source.seek(name, target)
        reader.records.clear()
        assert reader.read(name, 50)[:50] == list(range(target, target + 50))


def test_what_is_not_assigned_cannot_be_sought_and_pausing_it_changes_nothing(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic, other = stage.topic(), stage.topic()
    reader = reader_on(stage).join(topic)
    stranger = TopicPartition(other, 0)
    reader.source.pause([stranger])
    with pytest.raises(RunError, match="not assigned"):
        reader.source.seek(stranger, 0)
    stage.write(topic, b"v")
    assert reader.read(TopicPartition(topic, 0), 1) == [0]


# ---- positions


def test_a_position_is_one_past_the_last_record_that_was_delivered(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    stage.write(topic, *numbered(0, 1_000))
    reader = reader_on(stage).join(topic)
    reader.until(lambda: reader.offsets(name))

    def all_read() -> bool:
        assert reader.source.positions([name]) == {name: reader.offsets(name)[-1] + 1}
        return reader.offsets(name)[-1] == 999

    reader.until(all_read)
    assert reader.source.positions([name]) == {name: 1_000}


def test_a_position_is_unknown_until_something_was_read_since_the_start_or_the_last_seek(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(stage).join(topic)
    assert reader.source.positions([name]) == {}
    stage.write(topic, *numbered(0, 10))
    reader.read(name, 10)
    reader.source.pause([name])
    assert reader.source.positions([name]) == {name: 10}
    reader.source.seek(name, 4)
    assert reader.source.positions([name]) == {}
    reader.read(name, 16)
    assert reader.source.positions([name]) == {name: 10}


def test_positions_of_others_are_left_out(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic()
    stage.write(topic, b"v")
    reader = reader_on(stage).join(topic)
    name, stranger = TopicPartition(topic, 0), TopicPartition(topic, 5)
    reader.read(name, 1)
    assert reader.source.positions([name, stranger]) == {name: 1}


# ---- logs


def test_a_log_is_reported_from_its_first_offset_to_its_end(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(stage).join(topic)
    assert reader.source.log_range(name, DEADLINE_S) == (0, 0)
    stage.write(topic, *numbered(0, 10))
    assert reader.source.log_range(name, DEADLINE_S) == (0, 10)
    stage.delete_before(name, 4)
    assert reader.source.log_range(name, DEADLINE_S) == (4, 10)


def test_the_end_of_a_log_that_is_read_is_known_without_asking(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic(partitions=2)
    name, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = reader_on(stage).join(topic)
    stage.write(topic, *numbered(0, 10))
    reader.read(name, 10)
    reader.until(lambda: reader.source.log_ends([name]) == {name: 10})
    assert reader.source.log_ends([name, other]).get(other, 0) == 0


def test_the_log_of_a_partition_that_is_not_there_is_an_error(
    full: Full, reader_on: ReaderOn
) -> None:
    topic = full.topic()
    reader = reader_on(full).join(topic)
    for stranger in (TopicPartition(topic, 9), TopicPartition(full.unique_name("nowhere"), 0)):
        with pytest.raises(RunError, match="log of"):
            reader.source.log_range(stranger, DEADLINE_S)


def test_the_end_of_a_log_lies_beyond_the_marker_of_a_transaction(
    full: Full, reader_on: ReaderOn
) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(full).join(topic)
    full.transaction(topic, b"0", b"1")
    reader.read(name, 2)
    reader.until(lambda: reader.source.log_range(name, DEADLINE_S)[1] > 2)
    assert reader.source.log_range(name, DEADLINE_S) == (0, 3)


# ---- holes


def test_records_behind_transactions_are_found_and_aborted_ones_are_not_delivered(
    full: Full, reader_on: ReaderOn
) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    full.transaction(topic, b"0", b"1")
    full.transaction(topic, b"never", b"never", commit=False)
    full.write(topic, b"after")
    full.transaction(topic, b"last")
    reader = reader_on(full).join(topic)
    assert reader.read(name, 4) == [0, 1, 6, 7]
    assert [message.value() for message in reader.records[name]] == [b"0", b"1", b"after", b"last"]


def test_the_position_passes_markers_that_nothing_follows(full: Full, reader_on: ReaderOn) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    full.write(topic, b"0")
    reader = reader_on(full).join(topic)
    reader.read(name, 1)
    full.transaction(topic, b"never", commit=False)
    reader.until(lambda: reader.source.positions([name]) == {name: 3})
    full.transaction(topic, b"3")
    reader.until(lambda: reader.source.positions([name]) == {name: 5})
    assert reader.offsets(name) == [0, 3]


def test_what_compaction_took_is_passed_over(full: Full, reader_on: ReaderOn) -> None:
    topic = full.compacted()
    name = TopicPartition(topic, 0)
    reader = reader_on(full)
    reader.begin = lambda names: dict.fromkeys(names, 0)
    reader.join(topic)
    _, end = reader.source.log_range(name, DEADLINE_S)
    reader.until(lambda: reader.source.positions([name]) == {name: end})
    offsets = reader.offsets(name)
    assert offsets == sorted(set(offsets))
    assert len(offsets) < end
    first = reader.records[name][0]
    assert (first.key(), first.value(), first.offset()) == (b"same", b"2", 2)
    assert reader.records[name][-1].key() == b"other"


# ---- out of range


def out_of_range(stage: Stage, reader: Reader, at: int) -> TopicPartition:
    """Let a reader begin at an offset of a log that holds 5 to 9."""
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    stage.write(topic, *numbered(0, 10))
    stage.delete_before(name, 5)
    reader.begin = lambda names: dict.fromkeys(names, at)
    reader.join(topic)
    return name


@pytest.mark.parametrize("at", [4, 11, 1_000_000])
def test_a_position_outside_of_the_log_is_reported_once_and_reading_stands_until_a_seek(
    stage: Stage, reader_on: ReaderOn, at: int
) -> None:
    reader = reader_on(stage)
    name = out_of_range(stage, reader, at)
    reader.until(lambda: reader.out_of_range)
    stage.write(name.topic, b"10")
    for _ in range(10):
        reader.turn()
    assert reader.out_of_range == [name]
    assert (reader.offsets(name), reader.errors) == ([], [])
    reader.source.seek(name, 5)
    assert reader.read(name, 6) == [5, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("at", [5, 10])
def test_the_first_offset_and_the_end_lie_within_the_log(
    stage: Stage, reader_on: ReaderOn, at: int
) -> None:
    reader = reader_on(stage)
    name = out_of_range(stage, reader, at)
    stage.write(name.topic, b"10")
    assert reader.read(name, 11 - at) == list(range(at, 11))
    assert reader.out_of_range == []


SMALL_FETCHES = {"fetch.message.max.bytes": 300, "queued.min.messages": 20}
"""Of the tests' records, about 20 are fetched at once, and nothing while 20 wait to be read."""


def test_what_was_fetched_before_a_position_fell_out_of_range_is_delivered_before_that_is_reported(
    full: Full, group: str
) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    reader = Reader(full.source(group, **SMALL_FETCHES))
    handed_out: list[tuple[int, int]] = []

    def go_on(_name: TopicPartition) -> None:
        position = reader.source.positions([name])[name]
        handed_out.append((reader.offsets(name)[-1] + 1, position))
        reader.source.seek(name, 90)

    reader.on_trouble = go_on
    for first in range(0, 100, 10):
        full.write(topic, *numbered(first, 10))
    reader.max_records = 3
    reader.join(topic)
    reader.read(name, 3)
    full.delete_before(name, 90)
    reader.read(name, 6)  # makes room: the client fetches on, and is told
    for _ in range(30):  # round trips on the connection that brings the answer
        reader.source.log_range(name, DEADLINE_S)
    reader.max_records = 500
    reader.until(lambda: {99} <= set(reader.offsets(name)))
    ((delivered, position),) = handed_out
    assert delivered == position
    assert reader.offsets(name) == [*range(position), *range(90, 100)]


def test_what_was_fetched_of_a_partition_that_the_listener_sends_elsewhere_is_not_delivered(
    full: Full, group: str
) -> None:
    topic = full.topic(2)
    bad, good = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = Reader(full.source(group, **SMALL_FETCHES))

    def go_on(_name: TopicPartition) -> None:
        reader.source.seek(bad, 90)
        reader.source.seek(good, 3)
        reader.journal.append(("test", "sought", None))

    reader.on_trouble = go_on
    # Few at a time: the client does not get to the end, and what it has of the good one waits when
    # it tells of the bad one.
    reader.max_records = 3
    reader.join(topic)
    for number in range(10):
        full.write(topic, *numbered(number * 10, 10), partition=bad.partition)
        full.write(topic, *numbered(number * 100, 100), partition=good.partition)
    reader.until(lambda: reader.offsets(bad))
    full.delete_before(bad, 90)

    def after() -> dict[TopicPartition, list[int]]:
        place = reader.journal.index(("test", "sought", None))
        reported = [about for _, what, about in reader.journal[place:] if what == "records"]
        return {
            name: [o for each, os in reported if each == name for o in os] for name in (bad, good)
        }

    reader.until(lambda: reader.out_of_range)
    reader.max_records = 500
    reader.until(lambda: after()[bad][-1:] == [99] and after()[good][-1:] == [999])
    assert after() == {bad: list(range(90, 100)), good: list(range(3, 1000))}


def test_a_seek_within_the_listener_takes_effect(stage: Stage, reader_on: ReaderOn) -> None:
    reader = reader_on(stage)
    reader.on_trouble = lambda name: reader.source.seek(name, 8)
    name = out_of_range(stage, reader, 2)
    assert reader.read(name, 2) == [8, 9]


def test_a_partition_out_of_range_does_not_disturb_the_others(
    full_or_eager: Full, reader_on: ReaderOn
) -> None:
    topic = full_or_eager.topic(3)
    bad, good, paused = (TopicPartition(topic, partition) for partition in range(3))
    for partition in range(3):
        full_or_eager.write(topic, *numbered(0, 10), partition=partition)
    reader = reader_on(full_or_eager)
    begins = {bad: 50, good: 2, paused: None}
    reader.begin = lambda names: {name: begins[name] for name in names}
    reader.join(topic)
    reader.until(lambda: reader.out_of_range)
    reader.source.seek(bad, 9)
    assert reader.read(bad, 1) == [9]
    assert reader.read(good, 8) == list(range(2, 10))
    full_or_eager.write(topic, b"10", partition=1)
    assert reader.read(good, 9) == list(range(2, 11))
    assert reader.offsets(paused) == []
    reader.source.seek(paused, 0)
    assert reader.read(paused, 10) == list(range(10))


# ---- a topic that is deleted and made anew


def test_after_a_topic_was_made_anew_a_seek_reads_all_of_the_new_one(
    full: Full, reader_on: ReaderOn
) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    full.write(topic, *numbered(0, 10))
    reader = reader_on(full).join(topic)
    reader.read(name, 10)
    before = reader.source.facts([topic], DEADLINE_S)[topic].topic_id
    full.remake(topic)
    reader.until(lambda: reader.source.facts([topic], DEADLINE_S)[topic].topic_id != before)
    full.write(topic, *(b"new %d" % number for number in range(5)))
    reader.records.clear()
    reader.until(lambda: name in reader.held)
    reader.source.seek(name, 0)
    reader.until(lambda: reader.offsets(name)[-5:] == [0, 1, 2, 3, 4])
    assert [m.value() for m in reader.records[name]][-5:] == [b"new %d" % n for n in range(5)]


def test_what_was_committed_of_a_deleted_topic_is_gone(full: Full, reader_on: ReaderOn) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(full).join(topic)
    assert reader.commit(Commit(name, 7, "note")) == [None]
    full.remake(topic)
    reader.until(lambda: reader.source.committed([name], DEADLINE_S)[name].next_offset is None)
