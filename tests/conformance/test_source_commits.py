"""What a Source does with commits, and what it says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from tests.conformance.conftest import Full, Quiet
from tests.conformance.reader import Reader
from tests.conformance.stages import DEADLINE_S, Stage
from window_consumer.model.errors import BrokerUnavailableError
from window_consumer.model.protocols import Commit, CommittedOffset
from window_consumer.model.record import TopicPartition

ReaderOn = Callable[[Stage], Reader]

FITS = "m" * 4_095
DOES_NOT_FIT = "m" * 4_096


def test_nothing_is_committed_at_first(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(stage).join(topic)
    assert reader.source.committed([name], DEADLINE_S) == {name: CommittedOffset(None, "")}


def test_what_is_committed_can_be_read_with_its_metadata(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic(3)
    first, second, third = (TopicPartition(topic, partition) for partition in range(3))
    reader = reader_on(stage).join(topic)
    assert reader.commit(Commit(first, 3, FITS), Commit(second, 0, "")) == [None, None]
    assert reader.source.committed([first, second, third], DEADLINE_S) == {
        first: CommittedOffset(3, FITS),
        second: CommittedOffset(0, ""),
        third: CommittedOffset(None, ""),
    }


def test_a_new_member_reads_what_another_has_committed(
    stage: Stage, reader_on: ReaderOn, group: str
) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    stage.write(topic, *[b"v"] * 10)
    first = reader_on(stage).join(topic)
    first.commit(Commit(name, 6, "note"))
    assert first.source.close(DEADLINE_S)
    second = Reader(stage.source(group)).join(topic)
    assert second.source.committed([name], DEADLINE_S) == {name: CommittedOffset(6, "note")}
    assert second.read(name, 4) == [6, 7, 8, 9]


def test_answers_come_in_a_later_poll_and_once(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic(2)
    names = [TopicPartition(topic, partition) for partition in (0, 1)]
    reader = reader_on(stage).join(topic)
    reader.source.commit([Commit(name, 5, "") for name in names])
    assert reader.answers == {}
    reader.until(lambda: len(reader.answers) == 2)
    for _ in range(5):
        reader.turn()
    assert reader.answers == {name: [None] for name in names}


def test_a_commit_may_go_back_and_its_metadata_may_change_alone(
    stage: Stage, reader_on: ReaderOn
) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(stage).join(topic)
    for offset, metadata in ((5, "one"), (5, "two"), (2, "back")):
        assert reader.commit(Commit(name, offset, metadata)) == [None]
        found = reader.source.committed([name], DEADLINE_S)
        assert found == {name: CommittedOffset(offset, metadata)}


def test_metadata_of_4096_bytes_is_refused(full: Full, reader_on: ReaderOn) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(full).join(topic)
    (refusal,) = reader.commit(Commit(name, 5, DOES_NOT_FIT))
    assert refusal is not None
    assert (refusal.metadata_too_large, refusal.retriable) == (True, True)
    assert reader.source.committed([name], DEADLINE_S) == {name: CommittedOffset(None, "")}


def test_a_refused_partition_is_known_after_two_attempts_and_the_others_are_taken(
    full: Full, reader_on: ReaderOn
) -> None:
    topic = full.topic(3)
    good, bad, fine = (TopicPartition(topic, partition) for partition in range(3))
    reader = reader_on(full).join(topic)
    commits = [Commit(good, 5, "a"), Commit(bad, 5, DOES_NOT_FIT), Commit(fine, 7, "b")]
    first = reader.commit(*commits)
    for answer in first:
        assert answer is None or answer.retriable
    answers = reader.commit(*commits)
    assert (answers[0], answers[2]) == (None, None)
    assert answers[1] is not None
    assert answers[1].metadata_too_large
    assert reader.source.committed([good, fine], DEADLINE_S) == {
        good: CommittedOffset(5, "a"),
        fine: CommittedOffset(7, "b"),
    }


def test_a_commit_for_a_partition_that_is_not_there_is_refused(
    full: Full, reader_on: ReaderOn
) -> None:
    topic = full.topic()
    reader = reader_on(full).join(topic)
    (refusal,) = reader.commit(Commit(TopicPartition(topic, 9), 5, ""))
    assert refusal is not None
    assert not refusal.metadata_too_large


# ---- commit_now


def test_commit_now_returns_the_answers(full: Full, reader_on: ReaderOn) -> None:
    topic = full.topic(2)
    good, bad = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = reader_on(full).join(topic)
    assert reader.source.commit_now([Commit(good, 5, "now")], DEADLINE_S) == {good: None}
    assert reader.source.committed([good], DEADLINE_S) == {good: CommittedOffset(5, "now")}
    refusal = reader.source.commit_now([Commit(bad, 5, DOES_NOT_FIT)], DEADLINE_S)[bad]
    assert refusal is not None
    assert refusal.metadata_too_large
    assert reader.source.commit_now([], DEADLINE_S) == {}
    for _ in range(5):
        reader.turn()
    assert reader.answers == {}


def test_no_record_is_lost_around_commit_now(stage: Stage, reader_on: ReaderOn) -> None:
    topic = stage.topic(2)
    names = [TopicPartition(topic, partition) for partition in (0, 1)]
    for name in names:
        stage.write(topic, *[b"v"] * 500, partition=name.partition)
    reader = reader_on(stage).join(topic)
    for number in range(20):
        reader.turn(max_records=10)
        answers = reader.source.commit_now([Commit(names[0], number, "")], DEADLINE_S)
        assert answers == {names[0]: None}
    for name in names:
        assert reader.read(name, 500) == list(range(500))


def test_an_earlier_answer_is_not_taken_for_that_of_commit_now(
    full: Full, reader_on: ReaderOn
) -> None:
    topic = full.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(full).join(topic)
    reader.source.commit([Commit(name, 1, DOES_NOT_FIT)])
    assert reader.source.commit_now([Commit(name, 2, "fits")], DEADLINE_S) == {name: None}
    reader.source.commit([Commit(name, 3, "fits")])
    refusal = reader.source.commit_now([Commit(name, 4, DOES_NOT_FIT)], DEADLINE_S)[name]
    assert refusal is not None
    assert reader.source.committed([name], DEADLINE_S) == {name: CommittedOffset(3, "fits")}


class CommitsAtTheEnd(Reader):
    """Commits what it gives up, while a commit is on its way."""

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        super().on_revoked(names)
        self.source.commit([Commit(name, 3, "on its way") for name in names])
        commits = [Commit(name, 5, "last") for name in names]
        assert self.source.commit_now(commits, DEADLINE_S) == dict.fromkeys(names)


def test_commits_are_taken_within_a_revoke(full_or_eager: Full, group: str) -> None:
    topic = full_or_eager.topic(2)
    first = CommitsAtTheEnd(full_or_eager.source(group)).join(topic)
    second = Reader(full_or_eager.source(group))
    second.source.subscribe([topic], second)
    first.until(lambda: first.held and second.held, second)
    (revoked,) = first.reported("revoked")
    assert second.held <= revoked
    found = second.source.committed(sorted(revoked), DEADLINE_S)
    assert found == dict.fromkeys(revoked, CommittedOffset(5, "last"))


def test_a_commit_is_not_to_be_repeated_for_a_partition_that_is_given_up_while_it_is_on_its_way(
    full_or_eager: Full, group: str
) -> None:
    topic = full_or_eager.topic(2)
    first = Reader(full_or_eager.source(group)).join(topic)
    first.until(lambda: len(first.held) == 2)
    second = Reader(full_or_eager.source(group))
    second.source.subscribe([topic], second)
    deadline = time.monotonic() + DEADLINE_S
    while not first.reported("revoked"):
        assert time.monotonic() < deadline
        for _ in range(40):
            second.turn()  # so that the first's client knows already what it has to give up
        first.within_poll = True
        commits = [Commit(name, 5, "") for name in sorted(first.held)]
        answers = first.source.commit_now(commits, 3.0)
        first.within_poll = False
    (revoked,) = first.reported("revoked")
    assert [name for name in revoked if (error := answers[name]) and error.retriable] == []
    assert set(answers) == {commit.name for commit in commits}


# ---- no answer


def test_a_silent_broker_is_an_error_for_every_question(quiet: Quiet, reader_on: ReaderOn) -> None:
    topic = quiet.topic()
    name = TopicPartition(topic, 0)
    reader = reader_on(quiet).join(topic)
    reader.commit(Commit(name, 4, ""))
    with quiet.silence():
        for question in (
            lambda: reader.source.committed([name], 0.2),
            lambda: reader.source.log_range(name, 0.2),
            lambda: reader.source.facts([topic], 0.2),
        ):
            with pytest.raises(BrokerUnavailableError):
                question()
    assert reader.source.committed([name], DEADLINE_S) == {name: CommittedOffset(4, "")}
    assert reader.source.log_range(name, DEADLINE_S) == (0, 0)
    assert topic in reader.source.facts([topic], DEADLINE_S)
