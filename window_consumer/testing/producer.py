"""Writes a test's records to the partitions that Java's producers would choose."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from window_consumer.config.problems import did_you_mean
from window_consumer.model import headers as names
from window_consumer.model.errors import UsageError
from window_consumer.model.protocols import Clock
from window_consumer.model.record_identity import given_id
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.log import FakeMessage
from window_consumer.testing.fakes.topics import partition_of
from window_consumer.testing.records import HeaderValues, Value, bytes_of, headers_of


class TestProducer:
    """Appends records to the topics of a fake broker. Owner: one thread."""

    __test__ = False  # pytest would take it for a class of tests

    def __init__(
        self,
        broker: FakeBroker,
        clock: Clock,
        sources: Mapping[str, Collection[str]],
        with_once: Collection[str],
        run_id: str,
    ):
        """``with_once`` names the workers whose database remembers ids across runs."""
        self._broker = broker
        self._clock = clock
        self._with_once = with_once
        self._run_id = run_id
        self._sources = sources
        """The topics that each worker reads."""
        self._keyless = 0

    def write(
        self,
        topic: str,
        value: Value,
        key: bytes | str | None,
        *,
        headers: HeaderValues,
        partition: int | None,
        timestamp: int | None,
    ) -> FakeMessage:
        """Write a record, see ``TestApp.send``; UsageError for an invalid one."""
        count = self._partitions_of(topic)
        raw_key = key.encode() if isinstance(key, str) else key
        if partition is None:
            partition = self._choose(raw_key, count)
        elif not 0 <= partition < count:
            raise UsageError(
                f"{topic} has {count} partitions, 0 to {count - 1}, but not {partition}; set"
                " another number with TestApp(topics={...})"
            )
        when = self._clock.wall_ms() if timestamp is None else timestamp
        raw_value, pairs = bytes_of(value), [*headers_of(headers)]
        if given_id(pairs) is None and self._is_remembered(topic):
            offset = self._broker.log(topic, partition).end
            pairs.append((names.ID, f"{topic}/{partition}/{offset}/{self._run_id}".encode()))
        return self._broker.produce(topic, partition, raw_key, raw_value, pairs, when)

    def _is_remembered(self, topic: str) -> bool:
        """Return whether a database may outlive this run and remember the ids of these records."""
        return any(topic in self._sources[worker] for worker in self._with_once)

    def _choose(self, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of(key, partitions)
        chosen = self._keyless % partitions
        self._keyless += 1
        return chosen

    def _partitions_of(self, topic: str) -> int:
        count = self._broker.topics.partitions(topic)
        if count:
            return count
        read = sorted({name for names in self._sources.values() for name in names})
        hint = did_you_mean(topic, read)
        raise UsageError(
            f"there is no topic {topic!r}: workers read {', '.join(read) or 'none'}"
            f"{'; ' if hint else ''}{hint}"
        )
