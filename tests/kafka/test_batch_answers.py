"""Batches in transactions, as rules: who is to blame, what is sent again, who gets which answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from window_consumer.kafka.writing.batch_answers import (
    UNANSWERED,
    AfterAbort,
    AnsweredBatch,
    RefusedRecord,
)
from window_consumer.kafka.writing.batch_limits import BatchLimits
from window_consumer.kafka.writing.sent_record import SendFailure
from window_consumer.model.protocols import Copy

EXPIRED = SendFailure("transient", "no answer", 0, is_expired=True)
OF_ANOTHER = SendFailure("transient", "another one", 0, is_of_another=True)
PURGED = SendFailure("transient", "purged", 0, is_purged=True)
LIMIT = 1_000


def copy(key: str = "anna", size: int = 10, topic: str = "orders") -> Copy:
    return Copy(topic, 0, key.encode(), b"x" * size, ())


def batch_of(
    copies: Sequence[Copy], *, batch_bytes: int = 5_000, holds_keys: bool = True
) -> AnsweredBatch:
    return AnsweredBatch(copies, BatchLimits[RefusedRecord](batch_bytes), holds_keys=holds_keys)


@define
class Broker:
    """Takes transactions; refuses records by place, and batches of the client as a whole."""

    batch: AnsweredBatch
    invalid: set[int] = field(factory=set)
    names_them: bool = True
    """Whether it names the invalid records of a batch."""
    written: list[int] = field(factory=list)
    transactions: int = 0

    def run(self) -> None:
        """Send until everything has its answer."""
        while self.batch:
            self.transactions += 1
            assert self.transactions < 200, "it never ends"
            part = self.batch.next_part()
            sent = [place for place in part if not self.batch.is_held(place)]
            failures = self._refuse(sent)
            if not failures:
                self.written += sent
                self.batch.on_committed(sent)
                continue
            topics = self.batch.topics_to_measure(failures)
            self.batch.on_aborted(part, failures, None, dict.fromkeys(topics, LIMIT))

    def _refuse(self, sent: list[int]) -> dict[int, SendFailure]:
        large = [place for place in sent if len(self.batch.copies[place].value or b"") > LIMIT]
        if large:
            # All that the client has put into one batch with the first of them.
            most = self.batch._limits.properties["batch.size"]
            size = 0
            group: list[int] = []
            for place in sent[sent.index(large[0]) :]:
                size += len(self.batch.copies[place].value or b"")
                if group and size > most:
                    break
                group.append(place)
            return dict.fromkeys(group, SendFailure("too_large", "too large", 0))
        bad = self.invalid.intersection(sent)
        if not bad:
            return {}
        named = SendFailure("invalid", "invalid", 0)
        if not self.names_them:
            return dict.fromkeys(sent, named)
        return {place: named if place in bad else OF_ANOTHER for place in sent}


def refused(batch: AnsweredBatch) -> set[int]:
    return {place for place, each in enumerate(batch.answers) if each is not None and each.refused}


@pytest.mark.parametrize("names_them", [True, False])
def test_records_to_blame_are_found_and_the_others_are_written(*, names_them: bool) -> None:
    batch = batch_of([copy(str(number)) for number in range(16)])
    broker = Broker(batch, {3, 11}, names_them=names_them)
    broker.run()
    assert refused(batch) == {3, 11}
    assert sorted(broker.written) == [place for place in range(16) if place not in {3, 11}]


def test_records_that_are_too_large_are_found_with_smaller_batches() -> None:
    sizes = [10, 10, 1_500, 10, 2_000, 10]
    batch = batch_of([copy(str(place), size) for place, size in enumerate(sizes)])
    broker = Broker(batch)
    broker.run()
    assert refused(batch) == {2, 4}
    assert sorted(broker.written) == [0, 1, 3, 5]


@pytest.mark.parametrize("holds_keys", [True, False])
def test_what_follows_a_refused_record_of_its_key_waits_if_keys_are_held(
    *, holds_keys: bool
) -> None:
    copies = [copy("anna"), copy("anna"), copy("bert"), copy("anna")]
    batch = batch_of(copies, holds_keys=holds_keys)
    broker = Broker(batch, {1})
    broker.run()
    assert refused(batch) == {1}
    assert broker.written == ([0, 2] if holds_keys else [0, 2, 3])


def test_nothing_passes_a_record_that_had_no_answer() -> None:
    batch = batch_of([copy(), copy("bert"), copy(topic="others")])
    part = batch.next_part()
    after = batch.on_aborted(part, {0: EXPIRED}, EXPIRED, {})
    assert after is AfterAbort.NOTHING
    again = batch.next_part()
    assert [place for place in again if not batch.is_held(place)] == [2]
    assert batch.answers[1] is UNANSWERED
    assert batch.answers[0] is not None
    assert batch.answers[0].why == "no answer"


def test_a_transaction_that_nobody_answered_is_tried_again_as_it_is() -> None:
    batch = batch_of([copy(), copy()])
    part = batch.next_part()
    assert batch.on_aborted(part, {0: PURGED, 1: PURGED}, None, {}) is AfterAbort.PAUSE
    assert list(batch.next_part()) == list(part)


def test_without_a_client_nothing_is_known_of_the_rest() -> None:
    batch = batch_of([copy(), copy()])
    batch.on_unconnected("no coordinator")
    assert not batch
    assert [str(each) for each in batch.answers] == ["no coordinator"] * 2
    assert refused(batch) == set()


COPIES = st.lists(
    st.builds(copy, st.sampled_from("abc"), st.sampled_from([10, 600, 1_500])), max_size=30
)


@settings(deadline=None)
@given(
    copies=COPIES,
    invalid=st.sets(st.integers(0, 29)),
    names_them=st.booleans(),
    holds_keys=st.booleans(),
)
def test_each_record_has_one_answer_and_keys_keep_their_order(
    *, copies: list[Copy], invalid: set[int], names_them: bool, holds_keys: bool
) -> None:
    batch = batch_of(copies, holds_keys=holds_keys)
    broker = Broker(batch, invalid, names_them=names_them)
    broker.run()
    assert len(set(broker.written)) == len(broker.written)
    assert {place for place, each in enumerate(batch.answers) if each is None} == {*broker.written}
    to_blame = {place for place, each in enumerate(copies) if len(each.value or b"") > LIMIT}
    to_blame |= {place for place in invalid if place < len(copies)}
    assert refused(batch) <= to_blame
    if not holds_keys:
        assert refused(batch) == to_blame
    orders: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for place in broker.written:
        orders[copies[place].key].append(place)
    assert all(order == sorted(order) for order in orders.values())
