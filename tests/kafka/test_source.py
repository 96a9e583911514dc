"""What KafkaSource and KafkaSink do that is theirs alone; their contracts are in conformance."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.golden_texts import Golden
from tests.logged import events_in
from tests.waiting import wait_until
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode, NewRecord
from window_consumer.kafka.settings import ConsumerNeeds
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.source import KafkaSource
from window_consumer.model.errors import (
    BrokerUnavailableError,
    PublishFailedError,
    RunError,
    WindowConsumerError,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Commit, CommitResults, Copy
from window_consumer.model.record import TopicPartition

DEADLINE_S = 60.0
LOG = ClientLog(logging.getLogger("window_consumer.client"))
ORDERS = TopicPartition("orders", 0)


class Reader:
    """Reads everything from the first offset, and notes what it is told."""

    def __init__(self, source: KafkaSource):
        self.source = source
        self.assigned: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self.errors: list[WindowConsumerError] = []
        self.answers: list[CommitResults] = []
        self.offsets: list[int] = []
        self.out_of_range: list[tuple[TopicPartition, list[int]]] = []
        """Each with what had been read by then."""
        source.subscribe(["orders"], self)

    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        self.assigned += names
        self.source.start(dict.fromkeys(names, 0))

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        pass

    def on_lost(self, names: Sequence[TopicPartition]) -> None:
        self.lost += names

    def on_committed(self, results: CommitResults) -> None:
        self.answers.append(results)

    def on_out_of_range(self, name: TopicPartition) -> None:
        self.out_of_range.append((name, list(self.offsets)))

    def on_error(self, error: WindowConsumerError) -> None:
        self.errors.append(error)

    def until(self, what: Callable[[], object], max_records: int = 500) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < deadline, f"it did not happen; {self.errors}"
            for batch in self.source.poll(max_records, 0.02):
                self.offsets += [message.offset() for message in batch.messages]


@pytest.fixture
def source_of(embedded: EmbeddedBroker) -> Iterator[Callable[..., KafkaSource]]:
    """``source_of(**settings)``: a Source on the embedded broker, with a topic of 3 records."""
    embedded.create_topic("orders", 1)
    for value in (b"0", b"1", b"2"):
        embedded.produce("orders", value)
    made: list[KafkaSource] = []

    def source_of(**more: Any) -> KafkaSource:
        cluster = Cluster({"bootstrap.servers": embedded.bootstrap, "log_level": 0}, LOG)
        cluster.wait_until_there(DEADLINE_S, lambda _reason, _waited: None)
        needs = ConsumerNeeds("shop", "charge", ordered=True, memory=2**26)
        client = {"bootstrap.servers": embedded.bootstrap, "fetch.wait.max.ms": 10, "log_level": 0}
        made.append(KafkaSource({**client, **more}, needs, cluster, LOG))
        return made[-1]

    yield source_of
    for source in made:
        source.close(DEADLINE_S)


# ---- protocols


@pytest.mark.parametrize("how", ["unknown", "refused"])
def test_a_broker_without_the_consumer_protocol_is_joined_by_the_classic_one(
    embedded: EmbeddedBroker,
    source_of: Callable[..., KafkaSource],
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    if how == "unknown":
        embedded.disable_api(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    else:
        refusals = [ErrorCode.UNSUPPORTED_VERSION] * 3
        embedded.push_request_errors(ApiKey.CONSUMER_GROUP_HEARTBEAT, *refusals)
    with caplog.at_level(logging.INFO, "window_consumer.client"):
        reader = Reader(source_of())
        reader.until(lambda: reader.offsets == [0, 1, 2])
    assert reader.source.protocol == "classic"
    assert (reader.assigned, reader.lost) == ([ORDERS], [])
    assert events_in(caplog).count(LogEvent.PROTOCOL_DOWNGRADED) == 1


def test_a_protocol_that_was_asked_for_is_not_exchanged(
    embedded: EmbeddedBroker, source_of: Callable[..., KafkaSource], golden: Golden
) -> None:
    embedded.push_request_errors(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, *[ErrorCode.UNSUPPORTED_VERSION] * 3
    )
    reader = Reader(source_of(**{"group.protocol": "consumer"}))
    with golden.raises(RunError):
        reader.until(lambda: reader.assigned)


# ---- callbacks


class BreaksOnce(Reader):
    """Raises at the first answer to a commit."""

    def on_committed(self, results: CommitResults) -> None:
        super().on_committed(results)
        if len(self.answers) == 1:
            raise RuntimeError("the listener is broken")


def test_a_listener_that_raises_does_not_raise_within_the_client(
    source_of: Callable[..., KafkaSource],
) -> None:
    reader = BreaksOnce(source_of())
    reader.until(lambda: reader.offsets == [0, 1, 2])
    reader.source.commit([Commit(ORDERS, 3, "")])
    with pytest.raises(RuntimeError, match="listener"):
        reader.until(lambda: reader.answers)
    reader.source.commit([Commit(ORDERS, 3, "again")])
    reader.until(lambda: len(reader.answers) == 2)
    assert reader.answers == [{ORDERS: None}, {ORDERS: None}]


def test_troubles_of_the_client_are_reported_and_reading_goes_on_by_itself(
    embedded: EmbeddedBroker, source_of: Callable[..., KafkaSource]
) -> None:
    reader = Reader(source_of(**{"reconnect.backoff.max.ms": 200}))
    reader.until(lambda: reader.offsets == [0, 1, 2])
    embedded.broker_down()
    reader.until(lambda: reader.errors)
    embedded.broker_up()
    embedded.produce("orders", b"3")
    reader.until(lambda: len(reader.offsets) > 3)
    assert reader.offsets == [0, 1, 2, 3]
    assert all(isinstance(error, BrokerUnavailableError) for error in reader.errors)


def wait_for_fetches(embedded: EmbeddedBroker, count: int) -> None:
    embedded.track_requests()
    deadline = time.monotonic() + DEADLINE_S
    while embedded.requests()[ApiKey.FETCH] < count:
        assert time.monotonic() < deadline, "the client does not fetch"


def test_records_that_were_fetched_before_an_error_are_handed_out_before_it_is_reported(
    embedded: EmbeddedBroker, source_of: Callable[..., KafkaSource]
) -> None:
    reader = Reader(source_of())
    embedded.fill("orders", [NewRecord(b"v", partition=0)] * 97)
    reader.until(lambda: reader.offsets, max_records=1)
    # Fetches go on beside us: those that bring everything, and then the one with the error.
    wait_for_fetches(embedded, 10)
    embedded.push_request_errors(ApiKey.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE)
    wait_for_fetches(embedded, 1)
    reader.source.log_range(ORDERS, DEADLINE_S)  # answered behind it
    reader.until(lambda: reader.out_of_range)
    assert reader.out_of_range == [(ORDERS, list(range(100)))]


# ---- the end


def test_a_close_that_hangs_is_given_up(
    embedded: EmbeddedBroker, source_of: Callable[..., KafkaSource]
) -> None:
    reader = Reader(source_of())
    reader.until(lambda: reader.assigned)
    embedded.set_rtt(20_000)  # the goodbye waits for its answer
    assert not reader.source.close(0.1)
    embedded.set_rtt(0)
    embedded.broker_down()


IN_A_FORK = """
import logging, os, sys
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.settings import ConsumerNeeds
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.source import KafkaSource
from window_consumer.model.errors import WrongProcessError
from window_consumer.model.protocols import Copy

client = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
log = ClientLog(logging.getLogger("client"))
cluster = Cluster(client, log)
source = KafkaSource(client, ConsumerNeeds("g", "w", ordered=False, memory=2**26), cluster, log)
source.subscribe(["orders"], None)
sink = KafkaSink(client, "w", log)
child = os.fork()
if child == 0:
    refused = 0
    for use in (
        lambda: source.poll(1, 0),
        lambda: source.commit([]),
        lambda: sink.write(Copy("orders", 0, None, b"v", ()), print),
    ):
        try:
            use()
        except WrongProcessError:
            refused += 1
    os._exit(refused)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


def test_use_after_a_fork_is_refused() -> None:
    # A fork of a process with threads is what is tested: the warning about it is no news.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", IN_A_FORK]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert done.stdout == "3\n"


# ---- the sink's client


def test_a_sink_connects_at_its_first_copy(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("copies", 1)
    embedded.track_requests()
    sink = KafkaSink({"bootstrap.servers": embedded.bootstrap}, "charge", LOG)
    sink.serve(0.05)
    assert sum(embedded.requests().values()) == 0
    answers: list[PublishFailedError | None] = []
    sink.write(Copy("copies", 0, None, b"v", ()), answers.append)
    assert sink.close(DEADLINE_S) == 0
    assert answers == [None]
    assert embedded.requests()[ApiKey.INIT_PRODUCER_ID] >= 1


def test_a_sink_that_connects_early_has_its_producer_id_before_the_first_copy(
    embedded: EmbeddedBroker,
) -> None:
    embedded.track_requests()
    sink = KafkaSink({"bootstrap.servers": embedded.bootstrap}, "charge", LOG)
    sink.connect()
    wait_until(lambda: embedded.requests()[ApiKey.INIT_PRODUCER_ID] >= 1, DEADLINE_S, "an id")
    assert sink.close(DEADLINE_S) == 0


def test_a_producer_that_cannot_be_made_leaves_its_copies_unacked() -> None:
    answers: list[PublishFailedError | None] = []
    sink = KafkaSink({"bootstrap.servers": "127.0.0.1:1", "linger.ms": "long"}, "charge", LOG)
    sink.connect()
    sink.write(Copy("orders", 0, None, b"v", ()), answers.append)
    (error,) = answers
    assert error is not None
    assert "queue.buffering.max.ms" in str(error)  # its older name
    assert sink.close(0) == 0


def test_a_full_queue_is_reported_at_once(embedded: EmbeddedBroker, golden: Golden) -> None:
    embedded.create_topic("copies", 1)
    embedded.broker_down()
    small = {"bootstrap.servers": embedded.bootstrap, "queue.buffering.max.messages": 1}
    sink = KafkaSink({**small, "log_level": 0}, "charge", LOG)
    answers: list[PublishFailedError | None] = []
    for _ in range(3):
        sink.write(Copy("copies", 0, None, b"v", ()), answers.append)
    for error in answers:
        golden(error)
    assert len(answers) == 2
    embedded.broker_up()
    assert sink.close(DEADLINE_S) == 0
    assert answers[2:] == [None]
