from __future__ import annotations

import _ctypes
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode, NewRecord
from window_consumer.kafka.embedded.mock_cluster import load_functions
from window_consumer.model.errors import MissingTopicError, NotPermittedError, UsageError

ConsumerOf = Callable[..., AbstractContextManager[Consumer]]


# ---- records


def test_a_record_comes_back_byte_for_byte(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    headers = [("trace", b"1"), ("trace", b"2"), ("none", None), ("\u00fcber", b"")]
    place = embedded.produce("orders", b"\x00\xff", key=b"k", headers=headers)
    (record,) = embedded.read_all("orders")
    assert place == (0, 0)
    assert (record.key(), record.value(), record.headers()) == (b"k", b"\x00\xff", headers)


def test_a_tombstone_differs_from_an_empty_value(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", None, key=b"")
    embedded.produce("orders", b"")
    tombstone, empty = embedded.read_all("orders")
    assert (tombstone.key(), tombstone.value()) == (b"", None)
    assert (empty.key(), empty.value()) == (None, b"")


def test_produce_says_where_the_record_went(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 3)
    places = [embedded.produce("orders", b"v", partition=partition) for partition in (2, 0, 2)]
    assert places == [(2, 0), (0, 0), (2, 1)]


def test_a_key_goes_where_other_clients_put_it(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("ours", 7)
    embedded.create_topic("theirs", 7)
    keys = [b"", *(f"key-{n}".encode() for n in range(100))]
    embedded.fill("ours", [NewRecord(b"v", key) for key in keys])
    producer = Producer({"bootstrap.servers": embedded.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce("theirs", b"v", key)
    producer.flush(10)
    # The client takes an empty key for none.
    ours = {r.key(): r.partition() for r in embedded.read_all("ours") if r.key()}
    assert ours == {r.key(): r.partition() for r in embedded.read_all("theirs") if r.key()}
    assert len(set(ours.values())) == 7


def test_records_without_a_key_are_spread_evenly(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 4)
    assert embedded.fill("orders", (NewRecord(b"v") for _ in range(1_000))) == 1_000
    assert embedded.end_offsets("orders") == {0: 250, 1: 250, 2: 250, 3: 250}


def test_read_all_returns_everything_by_partition_and_offset(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 4)
    values = [b"%d" % n for n in range(20_000)]
    embedded.fill("orders", [NewRecord(value, partition=n % 4) for n, value in enumerate(values)])
    found = embedded.read_all("orders")
    assert [(r.partition(), r.offset()) for r in found] == [
        (partition, offset) for partition in range(4) for offset in range(5_000)
    ]
    assert [r.value() for r in found] == [value for p in range(4) for value in values[p::4]]


def test_read_all_waits_for_the_partition_that_takes_longest(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 2)
    for partition in [0, *[1] * 30]:
        embedded.produce("orders", b"v", partition=partition)
    assert len(embedded.read_all("orders")) == 31


def test_an_empty_topic_reads_as_nothing(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 2)
    assert embedded.read_all("orders") == []
    assert embedded.end_offsets("orders") == {0: 0, 1: 0}


def test_a_worker_of_ones_own_gets_records_with_the_client_settings(
    embedded: EmbeddedBroker, consumer_of: ConsumerOf
) -> None:
    embedded.create_topic("orders", 1)
    with consumer_of(embedded.client_settings()) as consumer:
        consumer.subscribe(["orders"])
        embedded.produce("orders", b"v")
        message = consumer.poll(10)
        assert message is not None
        assert message.value() == b"v"


@pytest.mark.parametrize("call", ["fill", "read_all", "end_offsets", "delete_topic", "set_leader"])
def test_a_missing_topic_is_an_error(embedded: EmbeddedBroker, call: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"fill": ([NewRecord(b"v")],), "set_leader": (0, 1)}
    with pytest.raises(MissingTopicError, match="nowhere"):
        getattr(embedded, call)("nowhere", *arguments.get(call, ()))


def test_a_topic_that_a_client_made_can_be_filled(embedded: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": embedded.bootstrap})
    producer.produce("made-by-client", b"theirs", partition=3)
    producer.flush(10)
    assert embedded.produce("made-by-client", b"ours", partition=3) == (3, 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250])
def test_a_name_that_kafka_refuses_is_refused(embedded: EmbeddedBroker, name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(repr(name))):
        embedded.create_topic(name, 1)


def test_a_topic_that_exists_is_not_made_again(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    with pytest.raises(UsageError, match=r"orders.*already exists"):
        embedded.create_topic("orders", 2)


def test_a_topic_needs_a_partition(embedded: EmbeddedBroker) -> None:
    with pytest.raises(UsageError, match=r"orders.*partition"):
        embedded.create_topic("orders", 0)


def test_a_partition_that_does_not_exist_is_refused(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 2)
    with pytest.raises(UsageError, match=r"orders .*\b0 to 1\b.*\b2\b"):
        embedded.produce("orders", b"v", partition=2)


def test_a_refused_record_is_an_error(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    embedded.push_request_errors(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(NotPermittedError, match=r"orders\[0\].*\b0 records"):
        embedded.produce("orders", b"v")
    assert embedded.end_offsets("orders") == {0: 0}


# ---- topics come and go


def topic_id(broker: EmbeddedBroker, topic: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    answers = admin.describe_topics(TopicCollection([topic]), request_timeout=60)
    return str(answers[topic].result(timeout=60).topic_id)


def test_a_topic_made_anew_is_empty_and_has_another_id(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"v")
    before = topic_id(embedded, "orders")
    embedded.delete_topic("orders")
    for question in (embedded.end_offsets, embedded.partitions):
        with pytest.raises(MissingTopicError):
            question("orders")
    embedded.create_topic("orders", 2)
    assert embedded.end_offsets("orders") == {0: 0, 1: 0}
    assert topic_id(embedded, "orders") != before


def test_deleted_records_are_gone_from_the_beginning(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 2)
    embedded.fill("orders", [NewRecord(b"%d" % n, partition=0) for n in range(10)])
    embedded.delete_records("orders", 0, before=7)
    assert embedded.start_offsets("orders") == {0: 7, 1: 0}
    assert [r.offset() for r in embedded.read_all("orders")] == [7, 8, 9]
    embedded.delete_records("orders", 0)
    assert embedded.start_offsets("orders")[0] == embedded.end_offsets("orders")[0] == 10


# ---- beginning and end


THREADS_AND_FILES = """
from pathlib import Path
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.errors import UsageError


def threads_and_files():
    return [{path.name for path in Path("/proc/self", each).iterdir()} for each in ("task", "fd")]


before = threads_and_files()
"""


def run_alone(script: str) -> None:
    """Run this in a process without clients of other tests, whose connections come and go."""
    command = [sys.executable, "-c", THREADS_AND_FILES + script]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_nothing_is_left_after_close() -> None:
    run_alone("""
with EmbeddedBroker(brokers=3, topics={"orders": 4}) as broker:
    broker.fill("orders", [NewRecord(b"v")] * 100)
    assert len(broker.read_all("orders")) == 100
    assert threads_and_files() != before
assert threads_and_files() == before, threads_and_files()
""")


def test_nothing_is_left_when_the_start_fails() -> None:
    run_alone("""
try:
    EmbeddedBroker(topics={"orders": 4, "no good name": 1})
except UsageError as error:
    assert "no good name" in str(error)
else:
    raise AssertionError("it started")
assert threads_and_files() == before, threads_and_files()
""")


def test_a_cluster_needs_a_broker() -> None:
    with pytest.raises(UsageError, match="broker"):
        EmbeddedBroker(brokers=0)


def test_two_embedded_brokers_are_two_clusters(embedded: EmbeddedBroker) -> None:
    with EmbeddedBroker(topics={"orders": 1}) as other:
        assert other.bootstrap != embedded.bootstrap
        with pytest.raises(MissingTopicError):
            embedded.end_offsets("orders")


def test_calls_in_a_row_do_not_wait_for_the_mock_to_look_again(embedded: EmbeddedBroker) -> None:
    seconds = []
    for _ in range(300):
        started = time.monotonic()
        embedded.broker_up()
        seconds.append(time.monotonic() - started)
    assert max(seconds) < 0.9  # the mock looks once a second


def test_use_after_close_is_refused_and_a_second_close_is_fine() -> None:
    broker = EmbeddedBroker(topics={"orders": 1})
    broker.close()
    broker.close()
    uses = [
        lambda: broker.produce("orders", b"v"),
        lambda: broker.read_all("orders"),
        lambda: broker.end_offsets("orders"),
        lambda: broker.create_topic("more", 1),
        broker.broker_down,
        broker.requests,
    ]
    for use in uses:
        with pytest.raises(UsageError, match="closed"):
            use()


IN_A_FORK = """
import os
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import WrongProcessError

with EmbeddedBroker(topics={"orders": 1}) as broker:
    child = os.fork()
    if child == 0:
        refused = 0
        for use in (broker.broker_down, broker.requests, lambda: broker.produce("orders", b"v")):
            try:
                use()
            except WrongProcessError as error:
                refused += 1
        broker.close()
        raise SystemExit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    print(broker.produce("orders", b"the parent's still works"))
"""

FROM_ANOTHER_PROCESS = """
import sys
import time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1]})
producer.produce("orders", b"from another process")
sys.exit(producer.flush(10))
"""

WITHOUT_CLOSE = """
from window_consumer.kafka.embedded import EmbeddedBroker
print(EmbeddedBroker(topics={"orders": 1}).produce("orders", b"v"))
"""


def run(script: str, *arguments: str) -> str:
    # A fork of a process with threads is what is tested: the warning about it is no news.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_use_after_a_fork_is_refused_and_close_leaves_the_parents_alone() -> None:
    assert run(IN_A_FORK) == "(0, 0)\n"


def test_a_process_that_forgets_to_close_ends_all_the_same() -> None:
    assert run(WITHOUT_CLOSE) == "(0, 0)\n"


def test_another_process_can_use_it(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("orders", 1)
    run(FROM_ANOTHER_PROCESS, embedded.bootstrap)
    assert [record.value() for record in embedded.read_all("orders")] == [b"from another process"]


def test_a_client_library_without_a_mock_cluster_is_named() -> None:
    with pytest.raises(UsageError, match=r"has no rd_kafka_conf_new.*install confluent-kafka"):
        load_functions(_ctypes.__file__)
