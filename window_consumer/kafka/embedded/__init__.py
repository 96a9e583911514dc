"""A Kafka broker inside this process, for demos and tests: librdkafka's mock cluster."""

from __future__ import annotations

import ctypes
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Self

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.embedded.capacity import LIMITS, BrokerUsage, NewRecord
from window_consumer.kafka.embedded.mock_cluster import ApiKey, ErrorCode, MockCluster
from window_consumer.kafka.embedded.writing import write
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import MissingTopicError, UsageError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import Headers
from window_consumer.model.record import Message, TopicPartition

__all__ = ["LIMITS", "ApiKey", "EmbeddedBroker", "ErrorCode", "NewRecord"]

_ALL_BROKERS = -1
_NO_BROKER = -1
_LOGGER = logging.getLogger("window_consumer.client")
_ANSWER_S = 10.0
_TOPIC_NAME = re.compile(r"(?!\.\.?$)[a-zA-Z0-9._-]{1,249}")


class EmbeddedBroker:
    """A broker that lives as long as its ``with`` block; ``bootstrap`` is its address.

    It starts and stops within milliseconds. Clients of this and of other processes of the machine
    can use it. It is not a complete Kafka: ``LIMITS`` lists what it cannot do. Brokers have the
    numbers 1, 2, 3 ...; a topic's partitions have one replica, whose broker never changes by
    itself.

    Any thread may call, one at a time. After close, methods raise UsageError. In a forked process
    they raise WrongProcessError, and close does nothing.
    """

    def __init__(self, brokers: int = 1, topics: Mapping[str, int] | None = None):
        if brokers < 1:
            raise UsageError(f"an embedded broker needs at least one broker, not {brokers}")
        self._mock = MockCluster(brokers)
        self.bootstrap: str = self._mock.bootstrap
        """Comma-separated addresses for bootstrap.servers."""
        self._partitions: dict[str, int] = {}
        self._ledger = BrokerUsage()
        self._turn = count()
        try:
            for name, partitions in (topics or {}).items():
                self.create_topic(name, partitions)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop at once; connected clients lose their broker. A second call does nothing."""
        self._mock.close()

    def client_settings(self) -> dict[str, Any]:
        """Return the settings that your own consumer or worker needs with this broker."""
        return {
            "bootstrap.servers": self.bootstrap,
            # The mock does not answer a waiting fetch when a record arrives: the fetch waits to its
            # end.
            "fetch.wait.max.ms": 10,
            # First records after 0.1 s; the mock's classic groups accept no members later.
            "group.protocol": "consumer",
        }

    # ---- topics

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic. Raise UsageError if it exists or Kafka would not accept its name."""
        if not _TOPIC_NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a topic name: 1 to 249 letters, digits, '.', '_' and '-'"
            )
        if partitions < 1:
            raise UsageError(f"topic {name} needs at least one partition, not {partitions}")
        self._mock.call("mock_topic_create", name.encode(), partitions, 1)
        self._partitions[name] = partitions

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records; a recreated topic has another id."""
        partitions = self.partitions(name)
        self._mock.call("mock_topic_delete", name.encode())
        self._partitions.pop(name, None)
        for partition in range(partitions):
            self._ledger.reset(TopicPartition(name, partition))

    def partitions(self, topic: str) -> int:
        """Return a topic's number of partitions. Raises MissingTopicError."""
        self._mock.check_usable()
        if topic not in self._partitions:
            try:
                with self._reader() as reader:
                    self._partitions[topic] = len(reader.partitions(topic))
            except MissingTopicError as error:
                raise MissingTopicError(
                    f"the embedded broker has no topic {topic}: create it with create_topic()"
                ) from error
        return self._partitions[topic]

    # ---- writing

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Write one record, wait for the ack and return its partition and offset.

        Raises the same errors as ``fill``, which is much faster for many records.
        """
        (place,) = self._write(topic, [NewRecord(value, key, headers, partition)])
        return place

    def fill(self, topic: str, records: Iterable[NewRecord]) -> int:
        """Write records in large batches, wait for the acks and return how many there were.

        A record without a partition goes to the one that Java's producers choose for its key, or,
        without a key, to the next in turn. Raises CapacityError, with nothing written, if a
        partition could not keep all of them; MissingTopicError; and a RunError if a record is not
        acked within 10 s. Only records written here count against the capacity, not those of other
        clients.
        """
        return len(self._write(topic, list(records)))

    def _write(self, topic: str, records: list[NewRecord]) -> list[tuple[int, int]]:
        places = [self._place(topic, record) for record in records]
        self._ledger.charge(
            [(place, record.size()) for place, record in zip(places, records, strict=True)]
        )
        return write(self.bootstrap, zip(places, records, strict=True))

    def _place(self, topic: str, record: NewRecord) -> TopicPartition:
        partitions = self.partitions(topic)
        if record.partition is not None:
            return self._existing(topic, record.partition)
        if record.key is not None:
            return TopicPartition(topic, self._mock.partition_of(record.key, partitions))
        return TopicPartition(topic, next(self._turn) % partitions)

    def _existing(self, topic: str, partition: int) -> TopicPartition:
        partitions = self.partitions(topic)
        if not 0 <= partition < partitions:
            raise UsageError(f"{topic} has partitions 0 to {partitions - 1}, not {partition}")
        return TopicPartition(topic, partition)

    def delete_records(self, topic: str, partition: int, before: int | None = None) -> None:
        """Delete the records below an offset, or all; deleting all makes room for another fill."""
        name = self._existing(topic, partition)
        end = self.end_offsets(topic)[partition]
        before = end if before is None else before
        self._mock.call("mock_partition_delete_records", topic.encode(), partition, before)
        if before == end:
            self._ledger.reset(name)

    # ---- faults

    def broker_down(self, broker: int | None = None) -> None:
        """Cut a broker's connections and refuse new ones; None means all brokers."""
        self._mock.call("mock_broker_set_down", _ALL_BROKERS if broker is None else broker)

    def broker_up(self, broker: int | None = None) -> None:
        """Accept connections again, at the old address."""
        self._mock.call("mock_broker_set_up", _ALL_BROKERS if broker is None else broker)

    def set_rtt(self, milliseconds: int, broker: int | None = None) -> None:
        """Delay every answer of a broker; None means all brokers."""
        number = _ALL_BROKERS if broker is None else broker
        self._mock.call("mock_broker_set_rtt", number, milliseconds)

    def push_request_errors(self, api_key: ApiKey, *codes: ErrorCode) -> None:
        """Answer the next requests of this kind with these errors, without executing them."""
        array = (ctypes.c_int * len(codes))(*codes)
        self._mock.call("mock_push_request_errors_array", api_key, len(codes), array)

    def clear_request_errors(self, api_key: ApiKey) -> None:
        """Remove the errors of ``push_request_errors`` that have not been used."""
        self._mock.call("mock_clear_request_errors", api_key)

    def disable_api(self, api_key: ApiKey) -> None:
        """Pretend not to know this request, for clients that connect from now on."""
        self._mock.call("mock_set_apiversion", api_key, -1, -1)

    def set_leader(self, topic: str, partition: int, broker: int | None) -> None:
        """Move a partition with its records to another broker; None leaves it without a leader."""
        name = self._existing(topic, partition)
        number = _NO_BROKER if broker is None else broker
        self._mock.call("mock_partition_set_leader", topic.encode(), name.partition, number)

    def set_coordinator(self, group: str, broker: int) -> None:
        """Make a broker the coordinator of a group."""
        self._mock.call("mock_coordinator_set", b"group", group.encode(), broker)

    def track_requests(self) -> None:
        """Start counting requests, from zero."""
        self._mock.call("mock_clear_requests")
        self._mock.call("mock_start_request_tracking")

    def requests(self) -> Counter[int]:
        """Return how many requests of each kind (``ApiKey``) arrived since ``track_requests``."""
        return self._mock.requests()

    # ---- reading

    def end_offsets(self, topic: str) -> dict[int, int]:
        """Return the end (exclusive) of each partition. Raises MissingTopicError or a RunError."""
        return {name.partition: span.end for name, span in self._spans(topic).items()}

    def start_offsets(self, topic: str) -> dict[int, int]:
        """Return each partition's first offset; above 0 if records were deleted or dropped."""
        return {name.partition: span.first for name, span in self._spans(topic).items()}

    def _spans(self, topic: str) -> dict[TopicPartition, Span]:
        with self._reader() as reader:
            return reader.spans(topic)

    def read_all(self, topic: str) -> list[Message]:
        """Return all records up to the topic's end, headers included, without joining a group."""
        with self._reader() as reader:
            return reader.read_all(topic)

    def _reader(self) -> TopicReader:
        self._mock.check_usable()
        client = {"bootstrap.servers": self.bootstrap, "fetch.wait.max.ms": 10, "log_level": 0}
        return TopicReader(client, ClientLog(_LOGGER), deadline_s=_ANSWER_S)
