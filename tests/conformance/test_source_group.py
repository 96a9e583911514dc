"""What a Source tells of its group: who reads what, and in which order that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.conformance.conftest import BY_RANGE, Full, kinds
from tests.conformance.reader import Event, Reader
from tests.conformance.stages import DEADLINE_S, Stage
from tests.golden_texts import Golden
from window_consumer.model.errors import RunError
from window_consumer.model.protocols import Commit, CommittedOffset
from window_consumer.model.record import TopicPartition

ReaderOn = Callable[[Stage], Reader]


class Pair:
    """Two readers of one group and topic, with one journal."""

    def __init__(self, stage: Stage, group: str, topics: Sequence[str], **settings: object):
        self.stage = stage
        self.topics = list(topics)
        self.journal: list[Event] = []
        self.first = Reader(stage.source(group, **settings), self.journal, "first")
        self.second = Reader(stage.source(group, **settings), self.journal, "second")

    def meet(self, partitions: int) -> None:
        """Let the first take all, then the second join, and wait until they have shared."""
        self.first.join(*self.topics)
        self.first.until(lambda: len(self.first.held) == partitions)
        self.second.source.subscribe(self.topics, self.second)
        self.share(partitions)

    def share(self, partitions: int) -> None:
        """Let both take turns until each has half of the partitions."""
        half = partitions // 2
        self.first.until(
            lambda: (len(self.first.held), len(self.second.held)) == (half, half), self.second
        )


def names_of(topic: str, partitions: int) -> set[TopicPartition]:
    return {TopicPartition(topic, partition) for partition in range(partitions)}


def owners(journal: Sequence[Event]) -> Iterator[dict[TopicPartition, str]]:
    """Yield who owns what after each event; AssertionError where a partition has two owners."""
    owner: dict[TopicPartition, str] = {}
    for reader, what, about in journal:
        if what == "assigned":
            for name in about:
                assert name not in owner, f"{name} has two owners: {journal}"
                owner[name] = reader
        elif what in ("revoked", "lost"):
            for name in about:
                assert owner.pop(name) == reader
        yield dict(owner)


# ---- joining and leaving


def test_a_member_learns_of_its_partitions_within_poll(sharing: Full, reader_on: ReaderOn) -> None:
    topic = sharing.topic(4)
    reader = reader_on(sharing)
    reader.source.subscribe([topic], reader)
    assert reader.journal == []
    reader.until(lambda: reader.held == names_of(topic, 4))
    assert reader.reported("revoked") == []


def test_a_partition_has_one_owner_at_a_time(sharing: Full, group: str) -> None:
    topic = sharing.topic(4)
    pair = Pair(sharing, group, [topic])
    pair.meet(4)
    *_, last = owners(pair.journal)
    assert set(last) == names_of(topic, 4)


def test_who_keeps_a_partition_notices_nothing_of_it_unless_the_assignor_is_eager(
    sharing: Full, group: str
) -> None:
    topic = sharing.topic(4)
    pair = Pair(sharing, group, [topic])
    pair.meet(4)
    (revoked,) = pair.first.reported("revoked")
    if sharing.incremental:
        assert revoked == names_of(topic, 4) - pair.first.held
    else:
        assert revoked == names_of(topic, 4)


@pytest.mark.parametrize("sharing", kinds(*BY_RANGE), indirect=True)
def test_equal_numbers_of_two_topics_have_one_owner(sharing: Full, group: str) -> None:
    topics = [sharing.topic(4), sharing.topic(4)]
    pair = Pair(sharing, group, topics)
    pair.meet(8)
    for reader in (pair.first, pair.second):
        numbers = [{n.partition for n in reader.held if n.topic == topic} for topic in topics]
        assert numbers[0] == numbers[1]


def test_who_leaves_notices_nothing_and_the_others_get_its_partitions(
    sharing: Full, group: str
) -> None:
    topic = sharing.topic(4)
    pair = Pair(sharing, group, [topic])
    pair.meet(4)
    before = len(pair.journal)
    assert pair.second.source.close(DEADLINE_S)
    pair.first.until(lambda: pair.first.held == names_of(topic, 4))
    assert {event[0] for event in pair.journal[before:]} == {"first"}


def test_records_go_on_at_the_new_owner_where_the_old_one_has_committed(
    sharing: Full, group: str
) -> None:
    topic = sharing.topic(4)
    for partition in range(4):
        sharing.write(topic, *[b"v"] * 10, partition=partition)
    pair = Pair(sharing, group, [topic])
    pair.first.join(topic)
    for name in names_of(topic, 4):
        pair.first.read(name, 10)
        pair.first.commit(Commit(name, 6, ""))
    pair.meet(4)
    for name in pair.second.held:
        assert pair.second.read(name, 4, pair.first) == [6, 7, 8, 9]


def test_a_partition_that_was_paused_is_read_when_it_is_dealt_again(
    sharing: Full, group: str
) -> None:
    topic = sharing.topic(4)
    for partition in range(4):
        sharing.write(topic, *[b"v"] * 10, partition=partition)
    pair = Pair(sharing, group, [topic])
    pair.first.begin = dict.fromkeys
    pair.first.join(topic)
    pair.first.source.pause(sorted(pair.first.held))
    pair.first.begin = lambda names: dict.fromkeys(names, 0)
    pair.meet(4)
    assert pair.second.source.close(DEADLINE_S)
    pair.first.until(lambda: pair.first.held == names_of(topic, 4))
    dealt_again = set.union(set(), *pair.first.reported("assigned")[1:])
    assert dealt_again
    for name in dealt_again:
        assert pair.first.read(name, 10)[-10:] == list(range(10))


# ---- topics


def test_a_further_subscription_adds_partitions(sharing: Full, reader_on: ReaderOn) -> None:
    old, new = sharing.topic(2), sharing.topic(2)
    reader = reader_on(sharing).join(old)
    reader.source.subscribe([old, new], reader)
    reader.until(lambda: reader.held == names_of(old, 2) | names_of(new, 2))
    sharing.write(old, b"v")
    sharing.write(new, b"v")
    assert reader.read(TopicPartition(old, 0), 1) == [0]
    assert reader.read(TopicPartition(new, 0), 1) == [0]
    if sharing.incremental:
        assert reader.reported("revoked") == []


def test_a_topic_that_is_read_no_more_is_given_up(sharing: Full, reader_on: ReaderOn) -> None:
    kept, dropped = sharing.topic(2), sharing.topic(2)
    reader = reader_on(sharing)
    reader.source.subscribe([kept, dropped], reader)
    reader.until(lambda: len(reader.held) == 4)
    reader.source.subscribe([kept], reader)
    reader.until(lambda: reader.reported("revoked") and reader.held == names_of(kept, 2))
    sharing.write(kept, b"v")
    assert reader.read(TopicPartition(kept, 0), 1) == [0]


@pytest.mark.parametrize("sharing", kinds(*BY_RANGE, "embedded"), indirect=True)
def test_records_that_were_fetched_of_a_dropped_topic_keep_its_name(
    sharing: Stage, reader_on: ReaderOn
) -> None:
    kept, dropped = sharing.topic(1), sharing.topic(1)
    sharing.write(kept, *[b"v"] * 5)
    sharing.write(dropped, *[b"v"] * 50)
    reader = reader_on(sharing)
    reader.max_records = 1
    reader.source.subscribe([kept, dropped], reader)
    reader.until(lambda: len(reader.held) == 2)
    reader.read(TopicPartition(dropped, 0), 10)
    reader.source.subscribe([kept], reader)
    reader.until(lambda: len(reader.held) == 1)
    # Where a rebalance takes everything away, reading begins again at 0.
    reader.until(lambda: 4 in reader.offsets(TopicPartition(kept, 0)))
    assert set(reader.offsets(TopicPartition(kept, 0))) == {0, 1, 2, 3, 4}


def test_partitions_that_are_added_are_assigned(sharing: Full, reader_on: ReaderOn) -> None:
    topic = sharing.topic(1)
    reader = reader_on(sharing).join(topic)
    sharing.add_partitions(topic, 3)
    sharing.write(topic, b"v", partition=2)
    reader.until(lambda: reader.held == names_of(topic, 3))
    assert reader.read(TopicPartition(topic, 2), 1) == [0]


def test_a_deleted_topic_is_given_up(sharing: Full, reader_on: ReaderOn) -> None:
    topic, other = sharing.topic(2), sharing.topic(1)
    reader = reader_on(sharing)
    reader.source.subscribe([topic, other], reader)
    reader.until(lambda: len(reader.held) == 3)
    sharing.delete(topic)
    reader.until(lambda: reader.held == names_of(other, 1))
    sharing.write(other, b"v")
    assert reader.read(TopicPartition(other, 0), 1) == [0]


# ---- eviction


def test_an_evicted_member_learns_that_its_partitions_are_lost_and_joins_again(
    sharing: Full, group: str
) -> None:
    topic = sharing.topic(2)
    pair = Pair(sharing, group, [topic], **sharing.for_evicting)
    pair.meet(2)
    (lost,) = pair.first.held
    sharing.evict(pair.first.source, lambda: pair.second.until(lambda: len(pair.second.held) == 2))
    pair.first.until(lambda: pair.first.reported("lost"), pair.second)
    pair.share(2)
    assert pair.first.reported("lost") == [{lost}]
    sharing.write(topic, b"v", partition=0)
    sharing.write(topic, b"v", partition=1)
    for reader in (pair.first, pair.second):
        for name in reader.held:
            assert reader.read(name, 1, pair.first, pair.second)[-1] == 0


# ---- commits of strangers


def test_a_commit_of_a_member_that_is_not_the_owner_is_taken(sharing: Full, group: str) -> None:
    topic = sharing.topic(2)
    pair = Pair(sharing, group, [topic])
    pair.meet(2)
    (name,) = pair.second.held
    pair.second.commit(Commit(name, 40, "owner"))
    pair.first.source.commit([Commit(name, 20, "stranger")])
    pair.first.until(lambda: name in pair.first.answers, pair.second)
    assert pair.first.answers[name] == [None]
    assert pair.second.source.committed([name], DEADLINE_S) == {
        name: CommittedOffset(20, "stranger")
    }


# ---- errors of the listener, and the end


class BrokenReader(Reader):
    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        super().on_assigned(names)
        raise RuntimeError("the listener is broken")


def test_what_the_listener_raises_is_raised_by_poll_and_the_source_can_be_closed(
    sharing: Full, group: str
) -> None:
    topic = sharing.topic(1)
    reader = BrokenReader(sharing.source(group))
    with pytest.raises(RuntimeError, match="listener"):
        reader.join(topic)
    assert reader.source.close(DEADLINE_S)
    successor = Reader(sharing.source(group)).join(topic)
    assert successor.held == names_of(topic, 1)


def test_a_source_that_has_not_subscribed_or_is_closed_cannot_be_used(
    stage: Stage, group: str, golden: Golden
) -> None:
    topic = stage.topic(1)
    source = stage.source(group)
    for _ in range(2):
        with golden.raises(RunError):
            source.poll(1, 0)
        assert source.close(DEADLINE_S)
    reader = Reader(stage.source(group)).join(topic)
    assert reader.source.close(DEADLINE_S)
    with golden.raises(RunError):
        reader.source.poll(1, 0)
    assert reader.source.close(DEADLINE_S)
