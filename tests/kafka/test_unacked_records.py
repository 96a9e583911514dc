"""Records that are kept until the brokers have them, whatever clients, topics and brokers do.

The rules are driven with events, as a protocol library is: no thread, no clock, no Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from window_consumer.kafka.writing.refused_topics import CALM_S
from window_consumer.kafka.writing.sent_record import Ending, RecordEnd, SendFailure, SendVerdict
from window_consumer.kafka.writing.unacked_records import KeepingRules, UnackedRecords

MEMORY = 20_000
LARGEST = 2_000
MISSING_S = 60.0


@define(eq=False)
class Sending:
    """A record that is sent."""

    number: int
    topic: str
    key: bytes | str | None
    value: bytes | str | None

    @property
    def size(self) -> int:
        return len(self.value or b"")


def failure(
    verdict: SendVerdict = "transient", *, partition: int | None = 0, is_purged: bool = False
) -> SendFailure:
    return SendFailure(verdict, verdict, partition, is_purged=is_purged)


PURGED = failure(is_purged=True)


@define
class Cluster:
    """The driver of the rules, with clients and brokers that a test controls."""

    records: UnackedRecords[Sending] = field(init=False)
    resends: bool = True
    now: float = 1000.0
    missing: set[str] = field(factory=set)
    denied: set[str] = field(factory=set)
    limits: dict[str, int] = field(factory=dict)
    shared: list[Sending] = field(factory=list)
    separate: list[Sending] = field(factory=list)
    is_separate_open: bool = True
    is_fatal: bool = False
    numbers: int = 0
    accepted: list[int] = field(factory=list)
    acked: list[Sending] = field(factory=list)
    ended: dict[int, RecordEnd] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        rules = KeepingRules(
            memory=MEMORY,
            missing_topic_s=MISSING_S,
            largest_record=LARGEST,
            batch_bytes=2_000,
            resends=self.resends,
        )
        self.records = UnackedRecords(rules)

    def send(self, topic: str, key: str | None = "anna", size: int = 10) -> int:
        """Send a record; return its number. Raises BufferError if there is no room."""
        self.numbers += 1
        record = Sending(self.numbers, topic, key, b"x" * size)
        if self.is_fatal:
            self.records.wait(record)  # from a callback
        elif self.records.accept(record, len(self.shared), self.now):
            if sum(each.size for each in self.shared) + size > MEMORY:
                raise BufferError  # librdkafka's
            self._enqueue(record)
        self.accepted.append(record.number)
        self.pump()
        return record.number

    def _enqueue(self, record: Sending) -> None:
        self.records.memory.enter(record)
        self.shared.append(record)

    def _leave(self, *records: Sending) -> None:
        for record in records:
            self.records.memory.leave(record.size)
            self.shared.remove(record)

    def _verdict(self, records: list[Sending]) -> SendVerdict | None:
        topic = records[0].topic
        if topic in self.missing:
            return "missing"
        if topic in self.denied:
            return "denied"
        largest = self.limits.get(topic, LARGEST)
        return "too_large" if sum(each.size for each in records) > largest else None

    def deliver(self) -> None:
        """Let the shared client send a batch."""
        if self.is_fatal or not self.shared:
            return
        topic = self.shared[0].topic
        batch: list[Sending] = []
        most = self.records.limits.properties["batch.size"]
        for record in self.shared:
            if record.topic == topic and sum(each.size for each in batch) + record.size <= most:
                batch.append(record)
            elif record.topic == topic:
                break
        batch = batch or [self.shared[0]]
        verdict = self._verdict(batch)
        if verdict is None:
            self.acked += batch
            self._leave(*batch)
            return
        if verdict == "missing":  # the client knows of no partition for any of them
            batch = [each for each in self.shared if each.topic == topic]
        self.is_fatal = verdict != "missing"
        self._leave(*batch)
        for record in batch:
            self.records.on_failed(record, failure(verdict), self.now)
        self.pump()

    def deliver_separate(self, place: int = 0) -> None:
        """Let the separate client send a record: each is a batch of its own, in any order."""
        if not self.separate:
            return
        record = self.separate.pop(place % len(self.separate))
        verdict = self._verdict([record])
        if verdict is None:
            self.acked.append(record)
            self.records.on_separate_ack(record)
        else:
            self.records.on_separate_failed(record, failure(verdict), self.now)
        self.pump()

    def lose_separate(self) -> None:
        """Take the records of the separate client back."""
        lost, self.separate = self.separate, []
        for record in lost:
            self.records.on_separate_failed(record, PURGED, self.now)
        self.pump()

    def replace(self, in_flight: int = 0) -> None:
        """Replace the shared client; so many of its records are on their way."""
        purged = list(self.shared)
        self._leave(*purged)
        for place, record in enumerate(purged):
            each = SendFailure("transient", "", 0, is_purged=True, was_in_flight=place < in_flight)
            self.records.on_failed(record, each, self.now)
        self.records.sort_out(
            {topic: self.limits.get(topic) for topic in self.records.limits.topics}
        )
        if self.is_fatal:
            self.records.separate_refused_topics(self.now)
        self.is_fatal = False
        self.send_waiting()

    def send_waiting(self) -> None:
        for record in self.records.take():
            if record.topic in self.records.refused:
                self.records.refused.send(record)
            else:
                self._enqueue(record)
        self.pump()

    def tick(self, seconds: float) -> None:
        """Let time pass: topics are looked for, and return to the shared client."""
        self.now += seconds
        if self.is_fatal:
            return
        for topic in self.records.topics_to_find(self.now):
            if topic not in self.missing:
                self.records.on_found(topic)
        self.records.return_calm_topics(self.now)
        self.send_waiting()
        self.records.on_tick(self.now)
        self.pump()

    def pump(self) -> None:
        """Carry out what the rules have decided."""
        while self.records.refused.ready and self.is_separate_open:
            self.separate.append(self.records.refused.ready.popleft())
        self.records.end_large(self.limits)
        while self.records.endings:
            record, end = self.records.endings.popleft()
            assert record.number not in self.ended
            self.ended[record.number] = end

    def close(self) -> None:
        """Close as a producer does."""
        self.records.on_closing()
        for record in list(self.shared):
            self._leave(record)
            self.records.on_failed(record, PURGED, self.now)
        self.is_separate_open = False
        self.lose_separate()
        self.records.end_all()
        self.pump()

    def endings(self) -> dict[int, Ending]:
        """Return how records have ended."""
        return {number: end.ending for number, end in self.ended.items()}

    def numbers_acked(self) -> list[int]:
        """Return which records were acknowledged, in order."""
        return [record.number for record in self.acked]

    def check(self) -> None:
        """Check what is always true."""
        acked = self.numbers_acked()
        assert len(set(acked)) == len(acked), "delivered twice"
        assert not set(acked) & set(self.ended), "delivered, and failed as well"
        open_records = len(self.accepted) - len(acked) - len(self.ended)
        assert open_records == len(self.shared) + len(self.records), "lost, or in two places"
        orders: defaultdict[tuple[str, object], list[int]] = defaultdict(list)
        for record in self.acked:
            if record.key is not None:
                orders[record.topic, record.key].append(record.number)
        for order in orders.values():
            assert order == sorted(order), "overtaken"


def settle(cluster: Cluster) -> None:
    """Deliver until nothing is left, with a client that is replaced where it fails."""
    for _ in range(1_000):
        cluster.deliver()
        cluster.deliver_separate()
        if cluster.is_fatal:
            cluster.replace()
        cluster.check()
        if not (cluster.shared or cluster.separate):
            return
    raise AssertionError("it never ends")


def test_a_refused_batch_ends_its_records_and_leaves_the_others() -> None:
    cluster = Cluster()
    cluster.denied = {"denied"}
    denied = [cluster.send("denied") for _ in range(3)]
    good = [cluster.send("good") for _ in range(3)]
    cluster.deliver()
    assert cluster.is_fatal
    cluster.replace()
    assert "denied" in cluster.records.refused
    settle(cluster)
    assert cluster.endings() == dict.fromkeys(denied, Ending.DENIED)
    assert cluster.numbers_acked() == good


def test_a_topic_returns_after_a_time_that_doubles() -> None:
    cluster = Cluster()
    for calm_s in (CALM_S, 2 * CALM_S, 4 * CALM_S):
        cluster.denied = {"orders"}
        cluster.send("orders")
        settle(cluster)
        cluster.denied = set()
        cluster.tick(calm_s - 0.1)
        assert "orders" in cluster.records.refused
        cluster.tick(0.2)
        assert "orders" not in cluster.records.refused


def test_a_topic_does_not_return_before_what_is_in_flight_has_its_report() -> None:
    cluster = Cluster()
    cluster.denied = {"orders"}
    cluster.send("orders")
    settle(cluster)
    cluster.denied = set()
    first = cluster.send("orders")
    cluster.tick(CALM_S)
    second = cluster.send("orders")
    assert [each.number for each in cluster.separate] == [first]
    cluster.deliver_separate()
    assert not cluster.separate
    cluster.tick(0.0)
    assert [each.number for each in cluster.shared] == [second]


def test_separate_records_of_a_key_are_sent_one_after_another() -> None:
    cluster = Cluster()
    cluster.denied = {"orders"}
    cluster.send("orders")
    settle(cluster)
    cluster.denied = set()
    numbers = [cluster.send("orders", key) for key in ("anna", "bert", "anna", None, None)]
    in_flight = [each.number for each in cluster.separate]
    assert in_flight == [numbers[0], numbers[1], numbers[3], numbers[4]]
    cluster.lose_separate()
    assert [each.number for each in cluster.separate] == in_flight
    cluster.deliver_separate()
    assert [each.number for each in cluster.separate] == [*in_flight[1:], numbers[2]]


def test_a_refused_topic_that_is_missing_keeps_the_order_of_its_keys() -> None:
    cluster = Cluster()
    cluster.denied = {"orders"}
    cluster.send("orders")
    settle(cluster)
    cluster.denied, cluster.missing = set(), {"orders"}
    numbers = [cluster.send("orders"), cluster.send("orders")]
    cluster.deliver_separate()
    assert not cluster.separate
    cluster.missing = set()
    numbers.append(cluster.send("orders"))
    assert not cluster.separate
    cluster.tick(0.0)
    settle(cluster)
    assert cluster.numbers_acked() == numbers


def test_too_large_batches_get_smaller_until_the_record_is_alone() -> None:
    cluster = Cluster()
    cluster.limits = {"orders": 500}
    sizes = [100, 100, 600, 100, 100, 100]
    numbers = [cluster.send("orders", size=size) for size in sizes]
    settle(cluster)
    cluster.tick(CALM_S)
    settle(cluster)
    assert cluster.ended == {numbers[2]: RecordEnd(Ending.TOO_LARGE, "", 500)}
    assert cluster.numbers_acked() == [each for each in numbers if each != numbers[2]]


def test_records_of_a_missing_topic_wait_for_it_and_keep_their_order() -> None:
    cluster = Cluster()
    cluster.missing = {"orders"}
    numbers = [cluster.send("orders"), cluster.send("orders")]
    cluster.deliver()
    numbers.append(cluster.send("orders"))
    other = cluster.send("others")
    settle(cluster)
    assert cluster.numbers_acked() == [other]
    cluster.missing = set()
    cluster.tick(1.0)
    settle(cluster)
    assert cluster.numbers_acked() == [other, *numbers]


def test_a_topic_that_stays_missing_fails_its_records_and_then_each_new_one_at_once() -> None:
    cluster = Cluster()
    cluster.missing = {"orders"}
    numbers = [cluster.send("orders")]
    cluster.deliver()
    cluster.tick(MISSING_S - 1)
    assert cluster.endings() == {}
    cluster.tick(1.0)
    numbers.append(cluster.send("orders"))
    assert cluster.endings() == dict.fromkeys(numbers, Ending.NO_TOPIC)


def test_held_records_leave_half_of_the_memory_to_others() -> None:
    cluster = Cluster()
    cluster.missing = {"orders"}
    cluster.send("orders", size=1_500)
    cluster.deliver()
    with pytest.raises(BufferError):
        fill(cluster, "orders")
    assert len(cluster.records) * 1_500 <= MEMORY // 2
    with pytest.raises(BufferError):
        fill(cluster, "others")
    bound = cluster.records.memory.held_bytes + sum(each.size for each in cluster.shared)
    assert MEMORY - 1_500 < bound <= MEMORY


def test_records_are_sent_again_in_the_order_in_which_they_were_sent() -> None:
    cluster = Cluster()
    cluster.is_fatal = True
    numbers = [cluster.send("orders") for _ in range(3)]
    records = cluster.records.take()
    cluster.records.wait(records[2])
    cluster.records.wait(records[1], records[0])
    assert [each.number for each in cluster.records.take()] == numbers


def fill(cluster: Cluster, topic: str) -> None:
    while True:
        cluster.send(topic, size=1_500)


@pytest.mark.parametrize(
    ("in_flight", "ending"), [(0, Ending.NEVER_SENT), (1, Ending.MAY_HAVE_ARRIVED)]
)
def test_a_close_says_what_may_have_arrived(in_flight: int, ending: Ending) -> None:
    cluster = Cluster()
    number = cluster.send("orders")
    cluster.replace(in_flight)
    cluster.close()
    assert cluster.endings() == {number: ending}


def test_a_lost_connection_leaves_doubt_about_what_was_sent_before() -> None:
    cluster = Cluster()
    first = cluster.send("orders")
    cluster.records.on_disconnected(first)
    second = cluster.send("orders")
    cluster.close()
    assert cluster.endings() == {first: Ending.MAY_HAVE_ARRIVED, second: Ending.NEVER_SENT}


def test_a_refused_login_fails_what_is_there_and_nothing_later() -> None:
    cluster = Cluster()
    cluster.missing = {"orders"}
    held, sent = cluster.send("orders"), cluster.send("others")
    cluster.deliver()
    cluster.records.on_login_refused("wrong password")
    (record,) = cluster.shared
    cluster._leave(record)
    cluster.records.on_failed(record, PURGED, cluster.now)
    cluster.records.on_login_over()
    cluster.pump()
    assert cluster.endings() == dict.fromkeys([held, sent], Ending.LOGIN_REFUSED)
    cluster.missing = set()
    later = cluster.send("orders")
    settle(cluster)
    assert cluster.numbers_acked() == [later]


@pytest.mark.parametrize(
    ("verdict", "ending"),
    [("transient", Ending.FAILED), ("missing", Ending.NO_TOPIC), ("too_large", Ending.TOO_LARGE)],
)
def test_in_a_transaction_nothing_is_sent_again(verdict: SendVerdict, ending: Ending) -> None:
    cluster = Cluster(resends=False)
    number = cluster.send("orders")
    (record,) = cluster.shared
    cluster._leave(record)
    cluster.records.on_failed(record, failure(verdict), cluster.now)
    cluster.pump()
    assert cluster.endings() == {number: ending}


TOPICS = ("orders", "others")
Event = Callable[[Cluster], object]


def sending(topic: str, key: str | None, size: int) -> Event:
    def send(cluster: Cluster) -> None:
        try:
            cluster.send(topic, key, size)
        except BufferError:
            return
        if not cluster.is_fatal:
            bound = sum(each.size for each in cluster.shared) + cluster.records.memory.held_bytes
            assert bound <= MEMORY, "more than the bound"

    return send


def changing(name: str, topic: str) -> Event:
    def change(cluster: Cluster) -> None:
        if name == "limits":
            cluster.limits = {} if cluster.limits else {topic: 700}
        else:
            setattr(cluster, name, getattr(cluster, name) ^ {topic})

    return change


EVENTS = st.one_of(
    st.builds(
        sending,
        st.sampled_from(TOPICS),
        st.sampled_from(["anna", "bert", None]),
        st.sampled_from([10, 400, 1_000]),
    ),
    st.builds(changing, st.sampled_from(["missing", "denied", "limits"]), st.sampled_from(TOPICS)),
    st.sampled_from(
        [
            Cluster.deliver,
            Cluster.deliver_separate,
            lambda cluster: cluster.deliver_separate(-1),
            Cluster.lose_separate,
            Cluster.replace,
            lambda cluster: cluster.replace(in_flight=1),
            lambda cluster: cluster.tick(1.0),
            lambda cluster: cluster.tick(70.0),
        ]
    ),
)


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENTS, max_size=60), is_well_again=st.booleans())
def test_whatever_happens_nothing_is_lost_doubled_or_overtaken(
    *, events: list[Event], is_well_again: bool
) -> None:
    cluster = Cluster()
    for event in events:
        event(cluster)
        cluster.check()
    if is_well_again:
        cluster.missing, cluster.denied, cluster.limits = set(), set(), {}
        if cluster.is_fatal:
            cluster.replace()
        for _ in range(10):
            cluster.tick(1.0)
            settle(cluster)
        assert len(cluster.records) == 0
    cluster.close()
    cluster.check()
    assert len(cluster.records) == 0
    assert len(cluster.acked) + len(cluster.ended) == len(cluster.accepted)
    assert cluster.records.memory.held_bytes == 0


def test_what_waits_goes_before_what_is_accepted_once_its_topic_is_separate() -> None:
    records = Cluster().records
    waiting = [Sending(number, "orders", b"anna", b"x") for number in (1, 2)]
    records.on_failed(Sending(0, "orders", b"anna", b"x"), failure("denied"), 0.0)
    for each in reversed(waiting):
        records.on_failed(each, failure(), 0.0)
    assert records.separate_refused_topics(0.0)
    assert not records.accept(Sending(3, "orders", b"anna", b"x"), 0, 0.0)
    order = []
    while records.refused.ready:
        order.append(records.refused.ready.popleft())
        records.on_separate_ack(order[-1])
    assert [each.number for each in order] == [1, 2, 3]
